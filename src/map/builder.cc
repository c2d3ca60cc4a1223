// Builds a map from changes in any order.
//
// Ranges are collected and sorted in bulk. While they follow the earlier ones, they extend the same
// map; otherwise another map is started. Maps of similar size are united, so that a range takes
// part in O(log n) unions.
#include <algorithm>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/change_map.h"
#include "map/map_access.h"
#include "map/range_writer.h"

namespace cbt {
namespace {

constexpr size_t kRangesKept = 65536;

}  // namespace

struct ChangeMapBuilder::State {
  struct BlockRange {
    uint64_t begin;
    uint64_t end;
  };

  explicit State(const VolumeGeometry& volume)
      : geometry(volume),
        blocks(BlockCount(volume.capacity, volume.granularity)),
        shift(IsPowerOfTwo(volume.granularity) ? std::countr_zero(volume.granularity) : -1) {}

  VolumeGeometry geometry;
  const uint64_t blocks;
  const int shift;  // log2 of the granularity, -1 if not a power of two: divisions are slow
  bool sorted = true;
  std::vector<BlockRange> ranges;
  std::optional<RangeWriter> writer;  // of the map that is being written
  uint64_t last_begin = 0;            // of the ranges in it
  std::vector<ChangeMap> maps;        // each more than twice as large as the next
  absl::Status failure;               // sticky: changes may have been lost

  // Requires: begin < end <= blocks.
  absl::Status Add(uint64_t begin, uint64_t end) {
    // Writes often continue where the last one ended.
    if (!ranges.empty() && ranges.back().begin <= begin && begin <= ranges.back().end) {
      ranges.back().end = std::max(ranges.back().end, end);
      return absl::OkStatus();
    }
    // Make room before adding the range: an error means that it was not added.
    if (ranges.size() == kRangesKept) {
      if (absl::Status status = Attempt([this] { return Flush(); }); !status.ok()) return status;
    }
    sorted &= ranges.empty() || ranges.back().begin <= begin;
    ranges.push_back({begin, end});
    return absl::OkStatus();
  }

  // The map of everything; leaves the state empty. Not to be used after a failure.
  absl::StatusOr<ChangeMap> Build() {
    absl::Status status = Attempt([this] {
      if (absl::Status flushed = Flush(); !flushed.ok()) return flushed;
      return FinishMap(true);
    });
    if (!status.ok()) return status;
    ChangeMap map = std::move(maps.front());
    maps.clear();
    return map;
  }

  // Runs `work`, which moves changes between ranges, writer and maps. If it fails, or throws
  // because memory runs out, some may have been removed from one and not added to the other: a map
  // built later could lack them.
  template <typename Work>
  absl::Status Attempt(Work work) {
    if (!failure.ok()) return failure;
    failure = absl::InternalError("change map: building it was interrupted by an exception");
    failure = work();
    return failure;
  }

  // Adds the ranges to the current map if they follow what is in it; otherwise finishes that map
  // and starts another.
  absl::Status Flush() {
    if (ranges.empty()) return absl::OkStatus();
    if (!sorted) {
      std::sort(ranges.begin(), ranges.end(),
                [](const BlockRange& a, const BlockRange& b) { return a.begin < b.begin; });
    }
    sorted = true;
    if (writer.has_value() && ranges.front().begin < last_begin) {
      if (absl::Status status = FinishMap(false); !status.ok()) return status;
    }
    if (!writer.has_value()) writer.emplace();
    for (const BlockRange& range : ranges) {
      if (absl::Status status = writer->Add(range.begin, range.end); !status.ok()) return status;
    }
    last_begin = ranges.back().begin;
    ranges.clear();
    return absl::OkStatus();
  }

  // Finishes the current map and unites it with those of similar size, or with all.
  absl::Status FinishMap(bool all) {
    if (!writer.has_value()) writer.emplace();
    absl::StatusOr<ChangeMap> map = ChangeMapAccess::FromWriter(writer->Finish(), geometry);
    writer.reset();
    if (!map.ok()) return map.status();
    size_t taken = maps.size();
    uint64_t bytes = (*map)->portable().size();
    while (taken > 0 && (all || maps[taken - 1]->portable().size() <= 2 * bytes)) {
      bytes += maps[--taken]->portable().size();
    }
    std::vector<ChangeMapView> views(maps.begin() + static_cast<std::ptrdiff_t>(taken), maps.end());
    if (!views.empty()) {
      views.push_back(*map);
      map = UniteBlocks(views, geometry);
      if (!map.ok()) return map.status();
    }
    maps.resize(taken);
    maps.push_back(*std::move(map));
    return absl::OkStatus();
  }
};

absl::StatusOr<ChangeMapBuilder> ChangeMapBuilder::Create(const VolumeGeometry& geometry) {
  absl::Status status = CheckGeometry(geometry);
  if (!status.ok()) return status;
  return ChangeMapBuilder(std::make_unique<State>(geometry));
}

ChangeMapBuilder::ChangeMapBuilder(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChangeMapBuilder::~ChangeMapBuilder() = default;
ChangeMapBuilder::ChangeMapBuilder(ChangeMapBuilder&&) noexcept = default;
ChangeMapBuilder& ChangeMapBuilder::operator=(ChangeMapBuilder&&) noexcept = default;

absl::Status ChangeMapBuilder::Add(Extent extent) { return Add({&extent, 1}); }

absl::Status ChangeMapBuilder::Add(std::span<const Extent> extents) {
  const VolumeGeometry& geometry = state_->geometry;
  for (const Extent& extent : extents) {
    if (extent.offset > geometry.capacity || extent.length > geometry.capacity - extent.offset) {
      return absl::OutOfRangeError(absl::StrCat("extent (offset ", extent.offset, ", length ",
                                                extent.length, ") extends past the capacity of ",
                                                geometry.capacity, " bytes"));
    }
    if (extent.length == 0) continue;
    const uint64_t begin =
        state_->shift >= 0 ? extent.offset >> state_->shift : extent.offset / geometry.granularity;
    const uint64_t end = state_->shift >= 0 ? ((extent.end() - 1) >> state_->shift) + 1
                                            : BlockCount(extent.end(), geometry.granularity);
    if (absl::Status status = state_->Add(begin, end); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ChangeMapBuilder::AddBlocks(uint64_t begin, uint64_t end) {
  if (begin > end || end > state_->blocks) {
    return absl::OutOfRangeError(absl::StrCat(
        "blocks ", begin, " to ", end, " are not in a volume of ", state_->blocks, " blocks"));
  }
  return begin == end ? absl::OkStatus() : state_->Add(begin, end);
}

absl::StatusOr<ChangeMap> ChangeMapBuilder::Build() { return state_->Build(); }

}  // namespace cbt

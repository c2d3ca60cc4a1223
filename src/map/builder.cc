// Changes in any order to a map.
//
// Ranges are collected, sorted when there are many, and made a small map. Maps are united when they
// are of like size, so that a range takes part in O(log n) unions.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/change_map.h"
#include "map/map_access.h"
#include "map/range_writer.h"

namespace cbt {
namespace {

constexpr size_t kRangesKept = 65536;

struct BlockRange {
  uint64_t begin;
  uint64_t end;
};

}  // namespace

struct ChangeMapBuilder::State {
  VolumeGeometry geometry;
  std::vector<BlockRange> ranges;
  std::vector<ChangeMap> maps;  // each more than twice as large as the one behind it

  // Makes a map of the ranges and unites it with the ones of like size, or, in the end, with all.
  absl::Status Flush(bool all) {
    std::sort(ranges.begin(), ranges.end(),
              [](const BlockRange& a, const BlockRange& b) { return a.begin < b.begin; });
    RangeWriter writer;
    for (const BlockRange& range : ranges) {
      if (absl::Status status = writer.Add(range.begin, range.end); !status.ok()) return status;
    }
    absl::StatusOr<ChangeMap> map = ChangeMapAccess::FromWriter(writer.Finish(), geometry);
    if (!map.ok()) return map.status();
    size_t taken = maps.size();
    uint64_t bytes = (*map)->portable().size();
    while (taken > 0 && (all || maps[taken - 1]->portable().size() <= 2 * bytes)) {
      bytes += maps[--taken]->portable().size();
    }
    std::vector<ChangeMapView> views(maps.begin() + static_cast<std::ptrdiff_t>(taken), maps.end());
    views.push_back(*map);
    absl::StatusOr<ChangeMap> united = UniteBlocks(views, geometry);
    if (!united.ok()) return united.status();
    maps.resize(taken);
    maps.push_back(*std::move(united));
    ranges.clear();
    return absl::OkStatus();
  }
};

absl::StatusOr<ChangeMapBuilder> ChangeMapBuilder::Create(const VolumeGeometry& geometry) {
  absl::Status status = CheckGeometry(geometry.capacity, geometry.granularity);
  if (!status.ok()) return status;
  return ChangeMapBuilder(std::make_unique<State>(State{geometry, {}, {}}));
}

ChangeMapBuilder::ChangeMapBuilder(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChangeMapBuilder::~ChangeMapBuilder() = default;
ChangeMapBuilder::ChangeMapBuilder(ChangeMapBuilder&&) noexcept = default;
ChangeMapBuilder& ChangeMapBuilder::operator=(ChangeMapBuilder&&) noexcept = default;

absl::Status ChangeMapBuilder::Add(Extent extent) {
  const VolumeGeometry& geometry = state_->geometry;
  if (extent.offset > geometry.capacity || extent.length > geometry.capacity - extent.offset) {
    return absl::OutOfRangeError(absl::StrCat("extent (offset ", extent.offset, ", length ",
                                              extent.length, ") reaches past the capacity of ",
                                              geometry.capacity, " bytes"));
  }
  if (extent.length == 0) return absl::OkStatus();
  return AddBlocks(extent.offset / geometry.granularity,
                   BlockCount(extent.end(), geometry.granularity));
}

absl::Status ChangeMapBuilder::AddBlocks(uint64_t begin, uint64_t end) {
  const uint64_t blocks = BlockCount(state_->geometry.capacity, state_->geometry.granularity);
  if (begin > end || end > blocks) {
    return absl::OutOfRangeError(
        absl::StrCat("blocks ", begin, " to ", end, " of a volume of ", blocks));
  }
  if (begin == end) return absl::OkStatus();
  // Room is made before the range is taken: an error means that it was not.
  if (state_->ranges.size() == kRangesKept) {
    if (absl::Status status = state_->Flush(false); !status.ok()) return status;
  }
  std::vector<BlockRange>& ranges = state_->ranges;
  // Writes often go on where the last one ended.
  if (!ranges.empty() && ranges.back().begin <= begin && begin <= ranges.back().end) {
    ranges.back().end = std::max(ranges.back().end, end);
  } else {
    ranges.push_back({begin, end});
  }
  return absl::OkStatus();
}

absl::StatusOr<ChangeMap> ChangeMapBuilder::Build() {
  if (absl::Status status = state_->Flush(true); !status.ok()) return status;
  ChangeMap map = std::move(state_->maps.front());
  state_->maps.clear();
  return map;
}

}  // namespace cbt

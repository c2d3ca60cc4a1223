#include "map/map_cursor.h"

#include <algorithm>
#include <utility>

#include "cbt/batch.h"
#include "core/run_sink.h"
#include "map/container_merge.h"
#include "map/map_access.h"
#include "simd/kernels.h"

namespace cbt {
namespace {

static_assert(ExtentBatch::kSlack >= simd::kContainerSlack);

// The most containers that one Next() passes: a long run spans many without ending an extent.
constexpr size_t kContainersPerCall = size_t{1} << 14;

// Kernels turn a stretch of a container at a time into extents, directly in the batch. The last
// extent of a stretch is held back, because the next stretch may continue it.
class MapCursor final : public ExtentCursor {
 public:
  MapCursor(std::vector<std::shared_ptr<const PortableIndex>> maps, const VolumeGeometry& geometry,
            std::vector<std::shared_ptr<const void>> storage)
      : ExtentCursor(geometry.capacity, geometry.granularity),
        storage_(std::move(storage)),
        merge_(std::move(maps), BlockCount(geometry.capacity, geometry.granularity)),
        sink_(geometry.capacity, geometry.granularity) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    const uint64_t block = offset / granularity();
    held_ = {};
    left_ = 0;
    sink_.Reset();
    floor_ = offset;
    start_value_ = static_cast<uint32_t>(block & (kContainerBlocks - 1));
    start_key_ = block >> kContainerShift;
    merge_.Seek(start_key_);
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    size_t budget = kContainersPerCall;
    while (!batch.full()) {
      if (sink_.waiting()) {
        sink_.Take(batch);
      } else if (left_ > 0) {
        Decode(batch);
      } else if (budget-- == 0) {
        break;
      } else {
        absl::StatusOr<const Container*> container = merge_.Next();
        if (!container.ok()) return container.status();
        if (*container == nullptr) return Finish(batch);
        Begin(**container);
      }
    }
    return Covered();
  }

  // Only the last extent can extend past the capacity; from a bitset, it may have been returned
  // already.
  uint64_t Finish(ExtentBatch& batch) {
    if (held_.length > 0) {
      held_.length = std::min(held_.length, capacity() - held_.offset);
      batch.push_back(held_);
      held_ = {};
    }
    return capacity();
  }

  // Everything below this has been returned.
  uint64_t Covered() const noexcept {
    if (sink_.waiting()) return sink_.front().offset;
    if (held_.length > 0) return held_.offset;
    // The last word of a bitset may extend past the capacity.
    if (left_ > 0) return std::min(capacity(), std::max(floor_, NextOffset()));
    const uint64_t next = merge_.next_key() << kContainerShift;
    return next < BlockCount(capacity(), granularity()) ? std::max(floor_, next * granularity())
                                                        : capacity();
  }

  void Begin(const Container& container) {
    container_ = container;
    at_ = 0;
    const bool bitset = container.kind == ContainerKind::kBitset;
    left_ = bitset ? WordsBelowCapacity(container) : container.count;
    if (container.key != start_key_ || start_value_ == 0) return;
    // The position of Seek(). Decode() cuts a run that begins below it.
    if (!bitset) {
      at_ = LowerBound(container, start_value_);
      left_ -= at_;
    } else {
      at_ = start_value_ / 64;
      left_ -= at_;
      CopyInto(container, words_);
      container_.data = reinterpret_cast<const uint8_t*>(words_.data());
      words_[at_] &= ~uint64_t{0} << start_value_ % 64;
    }
    start_value_ = 0;
  }

  // The words of a bitset that hold a block of the volume. Later words are empty, and with large
  // blocks their offsets exceed 64 bits.
  size_t WordsBelowCapacity(const Container& container) const noexcept {
    const uint64_t blocks = BlockCount(capacity(), granularity()) - container.first_block();
    return std::min<uint64_t>(kBitsetWords, BlockCount(blocks, 64));
  }

  // The offset of a value of the container, in the kernels' unit.
  uint64_t Origin(uint64_t value) const noexcept {
    return (container_.first_block() + value) << sink_.shift();
  }

  // Decodes a stretch, at least one value or word, into the batch.
  void Decode(ExtentBatch& batch) {
    uint64_t* const offsets = batch.mutable_offsets();
    uint64_t* const lengths = batch.mutable_lengths();
    const uint64_t next = NextOffset();
    const bool touches = held_.length > 0 && held_.end() == next;
    if (held_.length > 0 && !touches) {
      batch.push_back(held_);
      held_ = {};
      if (batch.full()) return;
    }
    const size_t first = batch.size();
    const size_t room = batch.room();
    size_t runs;
    if (container_.kind == ContainerKind::kBitset) {
      runs = DecodeWords(touches, offsets + first, lengths + first, room);
    } else {
      const size_t count = std::min<size_t>(left_, room);
      if (container_.kind == ContainerKind::kArray) {
        runs = simd::Containers().expand_values(container_.data + 2 * at_, count, Origin(0),
                                                sink_.shift(), offsets + first, lengths + first);
      } else {
        simd::Containers().expand_pairs(container_.data + 4 * at_, count, Origin(0), sink_.shift(),
                                        offsets + first, lengths + first);
        runs = count;
      }
      at_ += count;
      left_ -= count;
      sink_.Scale(offsets + first, lengths + first, runs);
      if (touches) {
        offsets[first] = held_.offset;
        lengths[first] += held_.length;
      }
      held_ = {offsets[first + runs - 1], lengths[first + runs - 1]};
      --runs;
    }
    // Seek() may have moved into a run: what lies below the floor is not reported.
    if (runs > 0 && offsets[first] < floor_) {
      lengths[first] -= floor_ - offsets[first];
      offsets[first] = floor_;
    }
    if (held_.length > 0 && held_.offset < floor_) {
      held_.length -= floor_ - held_.offset;
      held_.offset = floor_;
    }
    sink_.Append(runs, batch);
  }

  // The offset (bytes) of the next value, or of the first bit of the next word.
  uint64_t NextOffset() const noexcept {
    switch (container_.kind) {
      case ContainerKind::kArray:
        return Origin(LoadU16(container_.data + 2 * at_)) * sink_.factor();
      case ContainerKind::kRun:
        return Origin(LoadU16(container_.data + 4 * at_)) * sink_.factor();
      case ContainerKind::kBitset:
        break;
    }
    return Origin(at_ * 64) * sink_.factor();
  }

  // Returns the number of complete runs, at most `room` plus the slack; an open run is held back.
  size_t DecodeWords(bool open, uint64_t* offsets, uint64_t* lengths, size_t room) {
    offsets[0] = open ? held_.offset / sink_.factor() : 0;
    const simd::RunScan scan =
        extract_runs_(container_.data + 8 * at_, nullptr, left_, Origin(at_ * 64), sink_.shift(),
                      open ? 1 : 0, offsets, lengths, room);
    at_ += scan.words;
    left_ -= scan.words;
    held_ = {};
    if (scan.open != 0) {
      const uint64_t begin = offsets[scan.runs];
      held_ = {begin * sink_.factor(), (Origin(at_ * 64) - begin) * sink_.factor()};
    }
    sink_.Scale(offsets, lengths, scan.runs);
    return scan.runs;
  }

  const std::vector<std::shared_ptr<const void>> storage_;
  ContainerMerge merge_;
  simd::ExtractRunsFn* const extract_runs_ = simd::ExtractRuns().single;
  RunSink sink_;

  Container container_;  // being decoded: `left_` words, values or pairs from `at_` on
  size_t at_ = 0;
  size_t left_ = 0;
  Extent held_;         // bytes; empty: none
  uint64_t floor_ = 0;  // bytes, the position of Seek()
  uint64_t start_key_ = 0;
  uint32_t start_value_ = 0;
  ContainerWords words_;
};

}  // namespace

std::unique_ptr<ExtentCursor> MakeContainerCursor(
    std::vector<std::shared_ptr<const PortableIndex>> maps, const VolumeGeometry& geometry,
    std::vector<std::shared_ptr<const void>> storage) {
  return std::make_unique<MapCursor>(std::move(maps), geometry, std::move(storage));
}

std::unique_ptr<ExtentCursor> MakeChangeMapCursor(const ChangeMap& map) {
  return MakeContainerCursor({ChangeMapAccess::Index(map)}, map->geometry(),
                             {ChangeMapAccess::Storage(map)});
}

std::unique_ptr<ExtentCursor> MakeChangeMapCursor(const ChangeMapView& map) {
  return MakeContainerCursor({ChangeMapAccess::Index(map)}, map.geometry(), {});
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeUnionCursor(std::span<const ChangeMap> maps) {
  if (maps.empty()) return absl::InvalidArgumentError("union: no maps");
  std::vector<std::shared_ptr<const PortableIndex>> indexes;
  std::vector<std::shared_ptr<const void>> storage;
  for (const ChangeMap& map : maps) {
    if (map->geometry() != maps.front()->geometry()) {
      return absl::InvalidArgumentError("union: maps have different geometries");
    }
    indexes.push_back(ChangeMapAccess::Index(map));
    storage.push_back(ChangeMapAccess::Storage(map));
  }
  return MakeContainerCursor(std::move(indexes), maps.front()->geometry(), std::move(storage));
}

}  // namespace cbt

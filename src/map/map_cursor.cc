#include "map/map_cursor.h"

#include <algorithm>
#include <bit>
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
  MapCursor(std::vector<std::shared_ptr<const PortableIndex>> maps, const VolumeGeometry& geometry)
      : ExtentCursor(geometry),
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

  // Blocks of one block of the map, or of 2 to 1 << kMaxFolds.
  bool DoReturnBlocks(uint64_t block_size) override {
    const uint64_t blocks = block_size / granularity();
    if (block_size % granularity() != 0 || !IsPowerOfTwo(blocks) || blocks >> kMaxFolds > 1) {
      return false;
    }
    block_size_ = block_size;
    fold_ = static_cast<unsigned>(std::countr_zero(blocks));
    sink_.TakeWhole();
    return true;
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    size_t budget = kContainersPerCall;
    while (!batch.full()) {
      if (sink_.waiting()) {
        sink_.Take(batch);
      } else if (left_ > 0) {
        block_size_ != 0 ? DecodeBlocks(batch) : Decode(batch);
      } else if (budget-- == 0) {
        break;
      } else {
        // Bitsets are changed for coarser blocks, and where the stream begins.
        if (words_ == nullptr && (fold_ != 0 || start_value_ != 0)) {
          words_ = std::make_unique_for_overwrite<ContainerWords>();
        }
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
    listed_until_ = 0;
    const bool bitset = container.kind == ContainerKind::kBitset;
    left_ = bitset ? WordsBelowCapacity(container) : container.count;
    if (bitset && fold_ != 0) FoldWords();
    if (container.key != start_key_ || start_value_ == 0) return;
    // The position of Seek(). Decode() cuts a run that begins below it.
    if (!bitset) {
      at_ = LowerBound(container, start_value_);
      left_ -= at_;
      listed_until_ = start_value_;
    } else {
      const uint32_t bit = start_value_ >> fold_;
      at_ = bit / 64;
      left_ -= std::min<size_t>(left_, at_);
      if (fold_ == 0) CopyInto(container, *words_);
      container_.data = reinterpret_cast<const uint8_t*>(words_->data());
      (*words_)[at_] &= ~uint64_t{0} << bit % 64;
    }
    start_value_ = 0;
  }

  // Replaces the bits of a bitset by those of the blocks to return.
  void FoldWords() noexcept {
    FoldBits(container_.data, fold_, words_->data());
    container_.data = reinterpret_cast<const uint8_t*>(words_->data());
    left_ = BlockCount(left_, size_t{1} << fold_);
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

  // Decodes a stretch into the batch, block by block.
  void DecodeBlocks(ExtentBatch& batch) {
    uint64_t* const offsets = batch.mutable_offsets() + batch.size();
    uint64_t* const lengths = batch.mutable_lengths() + batch.size();
    const size_t room = batch.room();
    size_t blocks = 0;
    switch (container_.kind) {
      case ContainerKind::kBitset: {
        const simd::BlockScan scan = list_blocks_(container_.data + 8 * at_, nullptr, left_,
                                                  Origin(at_ * 64 << fold_), step(), offsets, room);
        Pass(scan.words);
        blocks = scan.blocks;
        break;
      }
      case ContainerKind::kArray:
        blocks = fold_ == 0 ? ListValues(offsets, room) : ListFoldedValues(offsets, room);
        break;
      case ContainerKind::kRun:
        while (left_ > 0 && blocks < room) blocks += DecodeRun(offsets + blocks, room - blocks);
        break;
    }
    if (sink_.factor() != 1) {
      for (size_t i = 0; i < blocks; ++i) offsets[i] *= sink_.factor();
    }
    std::fill_n(lengths, blocks, block_size_);
    sink_.Append(blocks, batch);
  }

  size_t ListValues(uint64_t* offsets, size_t room) noexcept {
    const size_t blocks = std::min<size_t>(left_, room);
    for (size_t i = 0; i < blocks; ++i) {
      offsets[i] = Origin(LoadU16(container_.data + 2 * (at_ + i)));
    }
    Pass(blocks);
    return blocks;
  }

  // Several values may lie in one block.
  size_t ListFoldedValues(uint64_t* offsets, size_t room) noexcept {
    const size_t count = std::min<size_t>(left_, room);
    size_t blocks = 0;
    uint32_t until = listed_until_;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t value = RoundedDown(LoadU16(container_.data + 2 * (at_ + i)));
      offsets[blocks] = Origin(value);
      blocks += value >= until ? 1 : 0;
      until = value + (1u << fold_);
    }
    listed_until_ = until;
    Pass(count);
    return blocks;
  }

  // Lists blocks of the present run, at most `room` (> 0); returns their number.
  size_t DecodeRun(uint64_t* offsets, size_t room) noexcept {
    const uint8_t* const pair = container_.data + 4 * at_;
    const uint32_t first = LoadU16(pair);
    const uint32_t begin = std::max(RoundedDown(first), listed_until_);
    const uint32_t end = RoundedDown(first + LoadU16(pair + 2)) + (1u << fold_);
    // Blocks that the run before has in common with this one are listed.
    const size_t blocks = (end - std::min(begin, end)) >> fold_;
    const size_t count = std::min(blocks, room);
    const uint64_t origin = Origin(begin);
    for (size_t i = 0; i < count; ++i) offsets[i] = origin + (uint64_t{i} << step());
    listed_until_ = begin + (static_cast<uint32_t>(count) << fold_);
    if (count == blocks) Pass(1);
    return count;
  }

  // The first value of the block that a value lies in.
  uint32_t RoundedDown(uint32_t value) const noexcept { return value >> fold_ << fold_; }
  // From a block to the next one, in the kernels' unit, as a power of two.
  unsigned step() const noexcept { return sink_.shift() + fold_; }

  void Pass(size_t count) noexcept {
    at_ += count;
    left_ -= count;
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

  // The offset (bytes) of the next value, or of the first bit of the next word; of blocks, where
  // the next one may begin.
  uint64_t NextOffset() const noexcept {
    switch (container_.kind) {
      case ContainerKind::kArray:
        return OffsetFrom(LoadU16(container_.data + 2 * at_));
      case ContainerKind::kRun:
        return OffsetFrom(LoadU16(container_.data + 4 * at_));
      case ContainerKind::kBitset:
        break;
    }
    return Origin(at_ * 64 << fold_) * sink_.factor();
  }
  uint64_t OffsetFrom(uint32_t value) const noexcept {
    return Origin(std::max(RoundedDown(value), listed_until_)) * sink_.factor();
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

  ContainerMerge merge_;
  simd::ExtractRunsFn* const extract_runs_ = simd::ExtractRuns().single;
  simd::ListBlocksFn* const list_blocks_ = simd::ListBlocks().single->list;
  RunSink sink_;

  Container container_;  // being decoded: `left_` words, values or pairs from `at_` on
  size_t at_ = 0;
  size_t left_ = 0;
  uint64_t block_size_ = 0;    // bytes; 0: returns extents
  unsigned fold_ = 0;          // a block to return has 1 << fold_ of the map's
  uint32_t listed_until_ = 0;  // values of the container below are in blocks that were listed
  Extent held_;                // bytes; empty: none
  uint64_t floor_ = 0;         // bytes, the position of Seek()
  uint64_t start_key_ = 0;
  uint32_t start_value_ = 0;
  // Of a bitset that is changed before it is decoded; null until there may be one.
  std::unique_ptr<ContainerWords> words_;
};

absl::StatusOr<std::unique_ptr<ExtentCursor>> UnionOf(std::span<const ChangeMapView> maps) {
  if (maps.empty()) return absl::InvalidArgumentError("union: no maps");
  std::vector<std::shared_ptr<const PortableIndex>> indexes;
  for (const ChangeMapView& map : maps) {
    if (map.geometry() != maps.front().geometry()) {
      return absl::InvalidArgumentError("union: maps have different geometries");
    }
    indexes.push_back(ChangeMapAccess::Index(map));
  }
  return MakeContainerCursor(std::move(indexes), maps.front().geometry());
}

}  // namespace

std::unique_ptr<ExtentCursor> MakeContainerCursor(
    std::vector<std::shared_ptr<const PortableIndex>> maps, const VolumeGeometry& geometry) {
  return std::make_unique<MapCursor>(std::move(maps), geometry);
}

std::unique_ptr<ExtentCursor> MakeChangeMapCursor(const ChangeMap& map) {
  return MakeBorrowedChangeMapCursor(map.view());  // which keeps the map's bytes
}

std::unique_ptr<ExtentCursor> MakeBorrowedChangeMapCursor(const ChangeMapView& map) {
  return MakeContainerCursor({ChangeMapAccess::Index(map)}, map.geometry());
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeUnionCursor(std::span<const ChangeMap> maps) {
  return UnionOf(std::vector<ChangeMapView>(maps.begin(), maps.end()));
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBorrowedUnionCursor(
    std::span<const ChangeMapView> maps) {
  return UnionOf(maps);
}

}  // namespace cbt

// Cursors over the runs of set bits in one bitmap or in a combination of two.
#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/bitmap.h"
#include "core/bitmap_pair.h"
#include "core/parallel_cursor.h"
#include "core/run_assembler.h"
#include "simd/kernels.h"

namespace cbt {
namespace {

// The most words that one Next() scans: an empty bitmap of 2^34 blocks takes a few hundred calls,
// so that callers can check for cancellation every few hundred microseconds.
constexpr uint64_t kWordsPerCall = uint64_t{1} << 20;

// What reads the bits: the kernels of one operation.
struct Scans {
  simd::ExtractRunsFn* runs;
  simd::ExtractRunsInLayoutFn* runs_in_layout;
  const simd::BlockKernel* blocks;
};

// What keeps the bits of one bitmap or of two; empty if the caller does.
using BitOwners = std::array<std::shared_ptr<const void>, 2>;

class BitmapCursor final : public ExtentCursor {
 public:
  // Reports nothing after the last bit of `bits`, which may have fewer bits than the volume has
  // blocks.
  BitmapCursor(const BitmapPair& bits, BitOwners owners, const Scans& scans,
               const VolumeGeometry& geometry) noexcept
      : ExtentCursor(geometry),
        owners_(std::move(owners)),
        bits_(bits),
        scans_(scans),
        runs_(geometry.capacity, geometry.granularity) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    position_ = offset / granularity();
    runs_.Reset();
    return absl::OkStatus();
  }

  // Blocks of one bit, or of 2 to 64.
  bool DoReturnBlocks(uint64_t block_size) override {
    const uint64_t bits = block_size / granularity();
    if (block_size % granularity() != 0 || !IsPowerOfTwo(bits) || bits > 64) return false;
    fold_ = static_cast<unsigned>(std::countr_zero(bits));
    block_size_ = block_size;
    return true;
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (block_size_ != 0) return NextBlocks(batch);
    const uint64_t end = bits_.bit_count();
    uint64_t budget = kWordsPerCall;
    while (budget > 0 && !batch.full()) {
      if (runs_.waiting()) {
        runs_.Take(batch);
      } else if (position_ >= end) {
        runs_.Close(end, batch);
        return capacity();
      } else {
        if (const unsigned before = bits_.PastUnit(position_); before != 0) {
          // At the front of a bitmap that starts inside a unit this wraps, and so do the offsets of
          // bits that are not there.
          const uint64_t begin = position_ - before;
          bits_.WithFirstWord(position_, [&](const uint8_t* a, const uint8_t* b, size_t count) {
            return runs_.Scan(scans_.runs, a, b, count, begin, batch);
          });
          position_ = begin + 64;
          continue;
        }
        const uint64_t words = bits_.WithWordsInLayout(
            position_, budget,
            [&](const uint8_t* a, const uint8_t* b, size_t count, const simd::BitLayout* layout) {
              return uint64_t{
                  layout == nullptr
                      ? runs_.Scan(scans_.runs, a, b, count, position_, batch)
                      : runs_.Scan(scans_.runs_in_layout, *layout, a, b, count, position_, batch)};
            });
        // The missing bits of a partial last word are clear: they end a run that reaches the end.
        position_ += words * 64;
        budget -= std::min(budget, words);
      }
    }
    if (pieces_allowed()) runs_.ClosePiece(position_, batch);
    // Everything below position_ that is not pending has been returned. The product could wrap only
    // in the last word.
    if (const std::optional<uint64_t> pending = runs_.Pending()) return *pending;
    return position_ < end ? position_ * granularity() : capacity();
  }

  uint64_t NextBlocks(ExtentBatch& batch) noexcept {
    const uint64_t end = bits_.bit_count();
    const bool shifts = IsPowerOfTwo(block_size_);
    const auto shift = shifts ? static_cast<unsigned>(std::countr_zero(block_size_)) : 0u;
    const size_t group = size_t{1} << fold_;
    uint64_t budget = kWordsPerCall;
    while (budget > 0 && !batch.full() && position_ < end) {
      const uint64_t begin = position_ / 8 * 8;
      const size_t room = batch.room();
      uint64_t* const offsets = batch.mutable_offsets() + batch.size();
      const auto list = [&](const uint8_t* a, const uint8_t* b, size_t groups) {
        const uint64_t origin = begin >> fold_ << shift;
        if (fold_ == 0) return scans_.blocks->list(a, b, groups, origin, shift, offsets, room);
        std::array<uint64_t, kFoldedWords> folded;
        groups = std::min(groups, kFoldedWords);
        scans_.blocks->fold(a, b, groups, fold_, folded.data());
        return simd::ListBlocks().single->list(reinterpret_cast<const uint8_t*>(folded.data()),
                                               nullptr, groups, origin, shift, offsets, room);
      };
      const simd::BlockScan scan =
          begin == position_ ? bits_.WithGroups(position_, group, BlockCount(budget, group), list)
                             : bits_.WithFirstGroup(position_, group, list);
      const size_t kept = std::min(scan.blocks, room);
      // What the batch has no room for is found again: the next scan begins after the last block.
      position_ = scan.blocks > room ? (((offsets[kept - 1] >> shift) + 1) << fold_)
                                     : begin + uint64_t{scan.words} * group * 64;
      if (!shifts) {
        for (size_t i = 0; i < kept; ++i) offsets[i] *= block_size_;
      }
      batch.set_size(batch.size() + kept);
      budget -= std::min(budget, uint64_t{scan.words} * group);
    }
    std::fill_n(batch.mutable_lengths(), batch.size(), block_size_);
    return position_ < end ? position_ * granularity() : capacity();
  }

  // Words of coarser blocks at a time: small enough for the first-level cache.
  static constexpr size_t kFoldedWords = 256;

  const BitOwners owners_;
  const BitmapPair bits_;
  const Scans scans_;
  RunAssembler runs_;
  uint64_t position_ = 0;    // the next bit to scan
  uint64_t block_size_ = 0;  // bytes; 0: extents
  unsigned fold_ = 0;        // blocks have 1 << fold_ bits
};

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeCursor(const BitmapPair& bits, BitOwners owners,
                                                         const Scans& scans,
                                                         const VolumeGeometry& geometry,
                                                         const BitmapOptions& options) {
  if (scans.runs == nullptr) return absl::InvalidArgumentError("unknown bitmap operation");
  if (options.parallel <= 1 || options.executor == nullptr) {
    return std::make_unique<BitmapCursor>(bits, std::move(owners), scans, geometry);
  }
  ParallelParts parts;
  parts.make = [=, owners = std::move(owners)](uint64_t end) {
    return std::make_unique<BitmapCursor>(bits.Slice(0, BlockCount(end, geometry.granularity)),
                                          owners, scans, geometry);
  };
  return MakeParallelCursor(std::move(parts), geometry.capacity, geometry.granularity,
                            *options.executor, options.parallel);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> OverOne(const BitmapView& bitmap, BitOwners owners,
                                                      const VolumeGeometry& geometry,
                                                      const BitmapOptions& options) {
  if (absl::Status status = CheckBits(bitmap, geometry); !status.ok()) return status;
  return MakeCursor(
      BitmapPair(bitmap), std::move(owners),
      {simd::ExtractRuns().single, simd::ExtractRuns().in_layout.single, simd::ListBlocks().single},
      geometry, options);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> OverTwo(const BitmapView& base,
                                                      const BitmapView& target, BitmapOp op,
                                                      BitOwners owners,
                                                      const VolumeGeometry& geometry,
                                                      const BitmapOptions& options) {
  if (absl::Status status = CheckBits(base, geometry); !status.ok()) return status;
  if (absl::Status status = CheckBits(target, geometry); !status.ok()) return status;
  const simd::ExtractRunsKernels& runs = simd::ExtractRuns();
  return MakeCursor(
      BitmapPair(base, target), std::move(owners),
      {KernelFor(runs, op), KernelFor(runs.in_layout, op), KernelFor(simd::ListBlocks(), op)},
      geometry, options);
}

}  // namespace

absl::Status CheckBits(const BitmapView& bitmap, const VolumeGeometry& geometry) {
  if (absl::Status status = CheckGeometry(geometry); !status.ok()) return status;
  const uint64_t blocks = BlockCount(geometry);
  if (bitmap.bit_count() != blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("bitmap has ", bitmap.bit_count(), " bits, a volume of ", geometry.capacity,
                     " bytes has ", blocks, " blocks of ", geometry.granularity));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBitmapCursor(const Bitmap& bitmap,
                                                               const VolumeGeometry& geometry,
                                                               const BitmapOptions& options) {
  return OverOne(bitmap.view(), {bitmap.owner()}, geometry, options);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBitmapCursor(const Bitmap& base,
                                                               const Bitmap& target, BitmapOp op,
                                                               const VolumeGeometry& geometry,
                                                               const BitmapOptions& options) {
  return OverTwo(base.view(), target.view(), op, {base.owner(), target.owner()}, geometry, options);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBorrowedBitmapCursor(
    const BitmapView& bitmap, const VolumeGeometry& geometry, const BitmapOptions& options) {
  return OverOne(bitmap, {}, geometry, options);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeBorrowedBitmapCursor(
    const BitmapView& base, const BitmapView& target, BitmapOp op, const VolumeGeometry& geometry,
    const BitmapOptions& options) {
  return OverTwo(base, target, op, {}, geometry, options);
}

}  // namespace cbt

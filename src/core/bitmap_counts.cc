// Counts of bits and runs in bitmaps.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cbt/bitmap.h"
#include "core/bitmap_pair.h"
#include "simd/kernels.h"

namespace cbt {
namespace {

BitmapCounts Count(const BitmapPair& bits, simd::CountBitsFn* kernel) noexcept {
  BitmapCounts counts;
  uint64_t open = 0;
  for (uint64_t position = 0; position < bits.bit_count();) {
    position +=
        bits.WithWords(position, UINT64_MAX, [&](const uint8_t* a, const uint8_t* b, size_t words) {
          const simd::BitCounts found = kernel(a, b, words, open);
          counts.blocks += found.ones;
          counts.runs += found.starts;
          open = found.open;
          return uint64_t{words} * 64;
        });
  }
  return counts;
}

// `count(begin, end)` counts the blocks in [begin, end).
template <typename CountRange>
absl::StatusOr<uint64_t> Bytes(const VolumeGeometry& geometry, uint64_t offset, CountRange count) {
  const auto [capacity, granularity] = geometry;
  if (offset > capacity) {
    return absl::OutOfRangeError(
        absl::StrCat("offset ", offset, " is past the capacity ", capacity));
  }
  if (offset == capacity) return 0;
  const uint64_t blocks = BlockCount(geometry);
  const uint64_t last = blocks - 1;
  const uint64_t begin = offset / granularity;
  // The last block is counted separately: it may be partial, and so the product can't wrap.
  const uint64_t before = count(begin, last).blocks * granularity;
  return before + count(last, blocks).blocks * (capacity - last * granularity);
}

}  // namespace

BitmapCounts CountBlocks(const BitmapView& bitmap, uint64_t begin, uint64_t end) noexcept {
  return Count(BitmapPair(bitmap.Slice(begin, end)), simd::CountBits().single);
}

BitmapCounts CountBlocks(const BitmapView& base, const BitmapView& target, BitmapOp op,
                         uint64_t begin, uint64_t end) noexcept {
  return Count(BitmapPair(base.Slice(begin, end), target.Slice(begin, end)),
               KernelFor(simd::CountBits(), op));
}

absl::StatusOr<uint64_t> BytesToCome(const BitmapView& bitmap, const VolumeGeometry& geometry,
                                     uint64_t offset) {
  if (absl::Status status = CheckBits(bitmap, geometry); !status.ok()) return status;
  return Bytes(geometry, offset,
               [&](uint64_t begin, uint64_t end) { return CountBlocks(bitmap, begin, end); });
}

absl::StatusOr<uint64_t> BytesToCome(const BitmapView& base, const BitmapView& target, BitmapOp op,
                                     const VolumeGeometry& geometry, uint64_t offset) {
  if (absl::Status status = CheckBits(base, geometry); !status.ok()) return status;
  if (absl::Status status = CheckBits(target, geometry); !status.ok()) return status;
  if (KernelFor(simd::CountBits(), op) == nullptr) {
    return absl::InvalidArgumentError("unknown bitmap operation");
  }
  return Bytes(geometry, offset, [&](uint64_t begin, uint64_t end) {
    return CountBlocks(base, target, op, begin, end);
  });
}

}  // namespace cbt

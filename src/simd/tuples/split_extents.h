// Kernel family split_extents: extents cut into pieces of at most a given length.
//
// Contract header: instruction-set files include it, so nothing in it is inline.
#ifndef CBT_SIMD_SPLIT_EXTENTS_H_
#define CBT_SIMD_SPLIT_EXTENTS_H_

#include <cstddef>
#include <cstdint>

#include "simd/dispatch/levels.h"

namespace cbt::simd {

// The result of a call.
struct SplitScan {
  size_t extents;  // extents consumed
  size_t pieces;   // pieces written
};

// Elements past the pieces that may be overwritten.
inline constexpr size_t kSplitSlack = 16;

// Cuts extents into pieces of `most` bytes, the last one of each shorter; the part of an extent at
// or above `limit` is left out. Stops before the first extent of more than two pieces, and where
// fewer than two of `room` elements are left. Outputs have room for room + kSplitSlack.
// Requires: every extent is longer than 0 and begins below `limit`; offsets, sums and `most` are
//           below 2^63.
using SplitExtentsFn = SplitScan(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                                 uint64_t most, uint64_t limit, uint64_t* piece_offsets,
                                 uint64_t* piece_lengths, size_t room) noexcept;

struct SplitExtentsKernels {
  SplitExtentsFn* split;
};

CBT_DECLARE_AT_LEVEL(scalar, SplitExtentsKernels, kSplitExtents)
CBT_DECLARE_AT_LEVEL(avx512, SplitExtentsKernels, kSplitExtents)

}  // namespace cbt::simd

#endif  // CBT_SIMD_SPLIT_EXTENTS_H_

// Kernel family digest_tuples: XXH3 with 64 bits over pairs of offset and length, read from the two
// arrays as they are.
//
// XXH3 adds stripes of 64 bytes, here four tuples, to eight lanes of 64 bits (specification:
// https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md, "XXH3 Algorithm for long
// inputs"). Offsets only meet the even lanes, lengths the odd ones, so two vectors of lanes take
// the arrays' vectors without interleaving them first.
//
// Contract header: instruction-set files include it, so nothing in it is inline.
#ifndef CBT_SIMD_DIGEST_TUPLES_H_
#define CBT_SIMD_DIGEST_TUPLES_H_

#include <cstddef>
#include <cstdint>

#include "simd/dispatch/levels.h"

namespace cbt::simd {

inline constexpr size_t kStripeTuples = 4;
// The lanes are scrambled after this many stripes.
inline constexpr size_t kBlockStripes = 16;

// XXH3's default secret as little-endian words: those with an even index, and the others.
struct DigestSecret {
  uint64_t even[12];
  uint64_t odd[12];
};
extern const DigestSecret kDigestSecret;

// XXH3's accumulators: those with an even index, and the others.
struct DigestLanes {
  uint64_t even[4];
  uint64_t odd[4];
  size_t stripe;  // of the present block, below kBlockStripes
};

// Adds `stripes` stripes of kStripeTuples tuples each, any alignment, and scrambles the lanes where
// blocks end. Returns the sum of the lengths.
using DigestTuplesFn = uint64_t(const uint64_t* offsets, const uint64_t* lengths, size_t stripes,
                                DigestLanes& lanes) noexcept;

struct DigestTuplesKernels {
  DigestTuplesFn* add;
};

CBT_DECLARE_AT_EVERY_LEVEL(DigestTuplesKernels, kDigestTuples)

}  // namespace cbt::simd

#endif  // CBT_SIMD_DIGEST_TUPLES_H_

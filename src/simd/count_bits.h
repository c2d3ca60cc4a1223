// Kernel family count_bits: the number of set bits, and of their runs, in one bitmap or in a
// combination of two.
//
// Contract header: instruction-set files include it, so nothing in it is inline.
#ifndef CBT_SIMD_COUNT_BITS_H_
#define CBT_SIMD_COUNT_BITS_H_

#include <cstddef>
#include <cstdint>

#include "simd/dispatch/levels.h"

namespace cbt::simd {

struct BitCounts {
  uint64_t ones;    // set bits
  uint64_t starts;  // runs that begin in the words
  uint64_t open;    // the last bit
};

// Counts bits in `words` little-endian 64-bit words at `a` (and `b`; may be null for an operation
// on one bitmap), any alignment. `open`: the bit before the first one.
using CountBitsFn = BitCounts(const uint8_t* a, const uint8_t* b, size_t words,
                              uint64_t open) noexcept;

// One variant: a function for each operation on words.
struct CountBitsKernels {
  CountBitsFn* single;     // a
  CountBitsFn* exclusive;  // a ^ b
  CountBitsFn* and_not;    // b & ~a
  CountBitsFn* either;     // a | b
  CountBitsFn* both;       // a & b
};

CBT_DECLARE_AT_EVERY_LEVEL(CountBitsKernels, kCountBits)

}  // namespace cbt::simd

#endif  // CBT_SIMD_COUNT_BITS_H_

// Kernel family load_bits: converts bitmaps of any supported layout to little-endian words for the
// other kernels.
//
// Contract header: instruction-set files include it, so nothing in it is inline.
#ifndef CBT_SIMD_LOAD_BITS_H_
#define CBT_SIMD_LOAD_BITS_H_

#include <cstddef>
#include <cstdint>

#include "simd/dispatch/levels.h"

namespace cbt::simd {

// Writes `words` 64-bit words to `out`: the bits from bit `shift` (0 .. 7) of `from` on, inverted
// if `invert`. Bit b of `from` is bit b % 8 of byte b / 8, counted from the least significant one
// or, with `reverse`, from the most significant. Reads 8 * words bytes, and one more unless `shift`
// is 0. `from` and `out` don't overlap.
using LoadBitsFn = void(const uint8_t* from, unsigned shift, bool reverse, bool invert,
                        uint64_t* out, size_t words) noexcept;

struct LoadBitsKernels {
  LoadBitsFn* load;
};

CBT_DECLARE_AT_EVERY_LEVEL(LoadBitsKernels, kLoadBits)

}  // namespace cbt::simd

#endif  // CBT_SIMD_LOAD_BITS_H_

// Kernel family compare_blocks: which blocks of two memory ranges differ, and which blocks of one
// range are not all zero.
//
// Contract header: instruction-set files include it, so nothing in it is inline.
#ifndef CBT_SIMD_COMPARE_BLOCKS_H_
#define CBT_SIMD_COMPARE_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "simd/dispatch/levels.h"

namespace cbt::simd {

// Sets bit k of `changed` if the blocks [k * block_size, (k + 1) * block_size) of `a` and `b`
// (`bytes` bytes each, any alignment) differ, otherwise clears it. The last block may be partial.
// Writes whole words: the bits after the last block are 0. `block_size` > 0. Stops reading a block
// at its first difference.
using CompareBlocksFn = void(const uint8_t* a, const uint8_t* b, size_t bytes, size_t block_size,
                             uint64_t* changed) noexcept;

// As above, for the blocks of `data` that hold a nonzero byte.
using NonZeroBlocksFn = void(const uint8_t* data, size_t bytes, size_t block_size,
                             uint64_t* nonzero) noexcept;

struct CompareBlocksKernels {
  CompareBlocksFn* compare;
  NonZeroBlocksFn* nonzero;
};

CBT_DECLARE_AT_EVERY_LEVEL(CompareBlocksKernels, kCompareBlocks)

}  // namespace cbt::simd

#endif  // CBT_SIMD_COMPARE_BLOCKS_H_

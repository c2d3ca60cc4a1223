// Kernel family list_blocks: the set bits of one bitmap, or of a combination of two, one by one,
// and bitmaps of coarser blocks, whose bits are set if any bit of a group is.
//
// Contract header: instruction-set files include it, so nothing in it is inline.
#ifndef CBT_SIMD_LIST_BLOCKS_H_
#define CBT_SIMD_LIST_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "simd/dispatch/levels.h"

namespace cbt::simd {

// The result of a scan.
struct BlockScan {
  size_t words;   // words consumed
  size_t blocks;  // offsets written
};

// Elements past `room` that a scan may overwrite: the blocks of one more word.
inline constexpr size_t kBlockSlack = 64;

// Scans up to `words` little-endian 64-bit words at `a` (and `b`; may be null for an operation on
// one bitmap), any alignment, and writes the offset of each set bit in ascending order. Bit k of
// the first word has the offset origin + (k << shift).
// `room`: once this many blocks (> 0) are written, stops before the next word that is not 0, or
//         after a multiple of 64 words; so writes at most 63 more. `offsets` has room for
//         room + kBlockSlack; what is past the result is undefined.
// Every variant consumes the same words and writes the same offsets.
using ListBlocksFn = BlockScan(const uint8_t* a, const uint8_t* b, size_t words, uint64_t origin,
                               unsigned shift, uint64_t* offsets, size_t room) noexcept;

// Writes `words` words whose bit k is set if any of the bits k << fold .. (k + 1 << fold) - 1 of
// the words << fold words at `a` (and `b`) is. `fold`: 1 .. 6.
using FoldBitsFn = void(const uint8_t* a, const uint8_t* b, size_t words, unsigned fold,
                        uint64_t* out) noexcept;

// One operation on words.
struct BlockKernel {
  ListBlocksFn* list;
  FoldBitsFn* fold;
};

// One variant: a kernel for each operation on words.
struct ListBlocksKernels {
  const BlockKernel* single;     // a
  const BlockKernel* exclusive;  // a ^ b
  const BlockKernel* and_not;    // b & ~a
  const BlockKernel* either;     // a | b
  const BlockKernel* both;       // a & b
};

CBT_DECLARE_AT_EVERY_LEVEL(ListBlocksKernels, kListBlocks)

}  // namespace cbt::simd

#endif  // CBT_SIMD_LIST_BLOCKS_H_

// Kernel family containers: operations on the containers of roaring bitmaps (arrays of values,
// lists of runs, bitsets of 1024 words) in their serialised form.
//
// A list of runs is a sequence of pairs (first value, number of further values). Values and pairs
// are little-endian 16-bit numbers at any alignment.
//
// Contract header: instruction-set files include it, so nothing in it is inline.
#ifndef CBT_SIMD_CONTAINERS_H_
#define CBT_SIMD_CONTAINERS_H_

#include <cstddef>
#include <cstdint>

#include "simd/dispatch/levels.h"

namespace cbt::simd {

// The most values in an array, and so the limit of `expand_values`.
inline constexpr size_t kMaxArrayValues = 4096;

// Elements past their results that the functions below may overwrite.
inline constexpr size_t kContainerSlack = 64;

// The result of `collect_few`.
struct FewValues {
  size_t count;  // values; kNotFew: there are more, and nothing is known
  size_t runs;   // maximal runs of consecutive ones
};
inline constexpr size_t kNotFew = ~size_t{0};
// The most bits that it takes from one word.
inline constexpr size_t kFewBits = 10;

struct ContainersKernels {
  // Turns `count` strictly ascending values (1 .. kMaxArrayValues) into maximal runs. Value v has
  // the offset origin + (v << shift); lengths are in the same unit. Returns the number of runs;
  // both arrays have room for count + kContainerSlack.
  size_t (*expand_values)(const uint8_t* values, size_t count, uint64_t origin, unsigned shift,
                          uint64_t* offsets, uint64_t* lengths) noexcept;

  // The same for `count` pairs; each gives one run.
  void (*expand_pairs)(const uint8_t* pairs, size_t count, uint64_t origin, unsigned shift,
                       uint64_t* offsets, uint64_t* lengths) noexcept;

  // True if the values strictly ascend.
  bool (*check_values)(const uint8_t* values, size_t count) noexcept;

  // The number of values in the runs; 0 if the runs don't ascend, touch, overlap or extend past
  // 65535. `count` <= 65536.
  uint32_t (*check_pairs)(const uint8_t* pairs, size_t count) noexcept;

  // Writes the indexes of the set bits of 1024 little-endian words as values in ascending order;
  // returns their number. At most kMaxArrayValues are set; `values` has room for kContainerSlack
  // more.
  size_t (*collect_values)(const uint8_t* words, uint16_t* values) noexcept;

  // The same for bitsets in which no word has more than kFewBits set; otherwise, or if almost
  // kMaxArrayValues are set, kNotFew. Gives up at the first such word; passes empty words at the
  // speed of the loads. `values` has room for kMaxArrayValues + kContainerSlack.
  FewValues (*collect_few)(const uint8_t* words, uint16_t* values) noexcept;
};

CBT_DECLARE_AT_EVERY_LEVEL(ContainersKernels, kContainers)

}  // namespace cbt::simd

#endif  // CBT_SIMD_CONTAINERS_H_

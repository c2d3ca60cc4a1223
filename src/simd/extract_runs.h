// Kernel family extract_runs: the runs of set bits in one bitmap or in a combination of two,
// without building the combination.
//
// Let x be the combined bits and p the same bits shifted up by one, so that each bit meets its
// predecessor. Runs start at the set bits of x & ~p and end before those of p & ~x. Words with x ==
// p contain neither and cost no extra branch.
//
// Contract header: instruction-set files include it, so nothing in it is inline.
#ifndef CBT_SIMD_EXTRACT_RUNS_H_
#define CBT_SIMD_EXTRACT_RUNS_H_

#include <cstddef>
#include <cstdint>

#include "simd/dispatch/levels.h"

namespace cbt::simd {

// The result of a scan.
struct RunScan {
  size_t words;   // words consumed
  size_t runs;    // completed runs, whose offsets and lengths have been written
  uint64_t open;  // 1 if a run has begun but not ended: its start is in offsets[runs]
};

// Elements past `room` that a scan may overwrite: the runs of one more word, and whole vectors.
inline constexpr size_t kRunSlack = 64;

// Scans up to `words` little-endian 64-bit words at `a` (and `b`; may be null for an operation on
// one bitmap), any alignment, and writes the runs in ascending order. Bit k of the first word has
// the offset origin + (k << shift); lengths are in the same unit.
// `open`: 1 if the bit before the first one is set; offsets[0] then holds where that run began.
// `room`: stops before a word once this many runs (> 0) are complete, so writes at most 32 more.
//         Both arrays have room for room + kRunSlack; what is past the result is undefined.
// Every variant consumes the same words and writes the same runs.
using ExtractRunsFn = RunScan(const uint8_t* a, const uint8_t* b, size_t words, uint64_t origin,
                              unsigned shift, uint64_t open, uint64_t* offsets, uint64_t* lengths,
                              size_t room) noexcept;

// How bits lie in memory where they are not little-endian words with the first bit lowest.
struct BitLayout {
  bool most_significant_first = false;  // the first bit of each byte is its highest
  unsigned reversed_word_bytes = 1;  // the bytes of each word of so many (1, 2, 4, 8) are reversed
  uint64_t flip_a = 0;               // ~0: the bits of a are inverted
  uint64_t flip_b = 0;               // ~0: those of b
};

// As ExtractRunsFn, for bitmaps in `layout`. Reads the same bytes: 8 for each word.
using ExtractRunsInLayoutFn = RunScan(const BitLayout& layout, const uint8_t* a, const uint8_t* b,
                                      size_t words, uint64_t origin, unsigned shift, uint64_t open,
                                      uint64_t* offsets, uint64_t* lengths, size_t room) noexcept;

// A function for each operation on words.
template <typename Fn>
struct RunsOfEachOperation {
  Fn* single;     // a
  Fn* exclusive;  // a ^ b
  Fn* and_not;    // b & ~a
  Fn* either;     // a | b
  Fn* both;       // a & b
};

// One variant.
struct ExtractRunsKernels : RunsOfEachOperation<ExtractRunsFn> {
  RunsOfEachOperation<ExtractRunsInLayoutFn> in_layout;
};

CBT_DECLARE_AT_EVERY_LEVEL(ExtractRunsKernels, kExtractRuns)

}  // namespace cbt::simd

#endif  // CBT_SIMD_EXTRACT_RUNS_H_

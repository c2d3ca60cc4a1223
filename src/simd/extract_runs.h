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

#include "simd/levels.h"

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

// One variant: a function for each operation on words.
struct ExtractRunsKernels {
  ExtractRunsFn* single;     // a
  ExtractRunsFn* exclusive;  // a ^ b
  ExtractRunsFn* and_not;    // b & ~a
  ExtractRunsFn* either;     // a | b
  ExtractRunsFn* both;       // a & b
};

CBT_DECLARE_AT_EVERY_LEVEL(ExtractRunsKernels, kExtractRuns)

}  // namespace cbt::simd

#endif  // CBT_SIMD_EXTRACT_RUNS_H_

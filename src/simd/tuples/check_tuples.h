// Kernel family check_tuples: the rules that consecutive tuples of a stream follow.
//
// Contract header: instruction-set files include it, so nothing in it is inline.
#ifndef CBT_SIMD_CHECK_TUPLES_H_
#define CBT_SIMD_CHECK_TUPLES_H_

#include <cstddef>
#include <cstdint>

#include "simd/dispatch/levels.h"

namespace cbt::simd {

// The rules for consecutive tuples, in bytes.
struct TupleRules {
  uint64_t floor;     // the first tuple starts at or after this
  uint64_t capacity;  // every tuple starts below this
  uint64_t most_end;  // every tuple ends at or below this
  uint64_t size;      // every tuple has this size; 0: any size but 0
};

// The result of a check.
struct TupleCheck {
  // All rules hold, no tuple starts before the previous one ends, and every value is below 2^63.
  bool sound;
  uint64_t bytes;        // sum of the sizes, modulo 2^64
  uint64_t offset_bits;  // those that any offset has
};

// Checks `count` tuples.
using CheckTuplesFn = TupleCheck(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                                 const TupleRules& rules) noexcept;

struct CheckTuplesKernels {
  CheckTuplesFn* check;
};

CBT_DECLARE_AT_EVERY_LEVEL(CheckTuplesKernels, kCheckTuples)

}  // namespace cbt::simd

#endif  // CBT_SIMD_CHECK_TUPLES_H_

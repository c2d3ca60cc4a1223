// Kernel families decode_tuples and check_tuples: the tuples of a message from protobuf bytes, and
// the rules that they must keep.
//
// Contract header: instruction-set files include it, so it holds nothing inline.
#ifndef CBT_SIMD_DECODE_TUPLES_H_
#define CBT_SIMD_DECODE_TUPLES_H_

#include <cstddef>
#include <cstdint>

#include "simd/encode_tuples.h"

namespace cbt::simd {

// Decodes elements of field 3 from `in` on, as long as they have the form that encoders give them:
//
//   0x1a, length of what follows (one byte), 0x08, offset, 0x10, size
//
// with both values present, as varints of at most eight bytes, and the length exact. Stops before
// the first bytes that are anything else, also if they are a message as good, before the end of the
// `bytes` at `in`, and when `room` tuples are written. Returns the tuples and the bytes they took.
// Every variant stops at the same byte; none reads behind `in + bytes`.
using DecodeTuplesFn = TupleScan(const uint8_t* in, size_t bytes, uint64_t* offsets,
                                 uint64_t* lengths, size_t room) noexcept;

struct DecodeTuplesKernels {
  DecodeTuplesFn* decode;
};

// What consecutive tuples must keep.
struct TupleRules {
  uint64_t floor;     // the first one starts here or later
  uint64_t capacity;  // each starts below
  uint64_t most_end;  // each ends here or before
  uint64_t size;      // that each has; 0: any but 0
};

// What a check found.
struct TupleCheck {
  bool sound;  // all rules are kept, and each tuple starts at or after the end of the one before
  uint64_t bytes;  // sum of the sizes
};

// Checks `count` tuples; every value is below 2^63.
using CheckTuplesFn = TupleCheck(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                                 const TupleRules& rules) noexcept;

struct CheckTuplesKernels {
  CheckTuplesFn* check;
};

namespace scalar {
extern const DecodeTuplesKernels kDecodeTuples;
extern const CheckTuplesKernels kCheckTuples;
}  // namespace scalar
namespace sse42 {
extern const CheckTuplesKernels kCheckTuples;
}
namespace avx2 {
extern const DecodeTuplesKernels kDecodeTuples;
extern const CheckTuplesKernels kCheckTuples;
}  // namespace avx2
namespace avx512 {
extern const DecodeTuplesKernels kDecodeTuples;
extern const CheckTuplesKernels kCheckTuples;
}  // namespace avx512
namespace neon {
extern const CheckTuplesKernels kCheckTuples;
}

}  // namespace cbt::simd

#endif  // CBT_SIMD_DECODE_TUPLES_H_

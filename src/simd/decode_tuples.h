// Kernel family decode_tuples: the tuples of a message from protobuf bytes.
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

namespace scalar {
extern const DecodeTuplesKernels kDecodeTuples;
}
namespace avx2 {
extern const DecodeTuplesKernels kDecodeTuples;
}
namespace avx512 {
extern const DecodeTuplesKernels kDecodeTuples;
}

}  // namespace cbt::simd

#endif  // CBT_SIMD_DECODE_TUPLES_H_

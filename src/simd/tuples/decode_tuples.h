// Kernel family decode_tuples: decodes the tuples of a message from protobuf bytes.
//
// Contract header: instruction-set files include it, so nothing in it is inline.
#ifndef CBT_SIMD_DECODE_TUPLES_H_
#define CBT_SIMD_DECODE_TUPLES_H_

#include <cstddef>
#include <cstdint>

#include "simd/dispatch/levels.h"
#include "simd/tuples/encode_tuples.h"

namespace cbt::simd {

// Decodes elements of field 3 from `in` on, as long as they have the usual encoding:
//
//   0x1a, length of what follows (one byte), 0x08, offset, 0x10, size
//
// with both values present, as varints of at most eight bytes, and the length exact. Stops before
// the first bytes that are anything else, even if they are valid protobuf, at the end of the
// `bytes` at `in`, and after `room` tuples. Returns the tuples decoded and the bytes consumed.
// Every variant stops at the same byte; none reads past `in + bytes`.
using DecodeTuplesFn = TupleScan(const uint8_t* in, size_t bytes, uint64_t* offsets,
                                 uint64_t* lengths, size_t room) noexcept;

struct DecodeTuplesKernels {
  DecodeTuplesFn* decode;
};

CBT_DECLARE_AT_LEVEL(scalar, DecodeTuplesKernels, kDecodeTuples)
CBT_DECLARE_AT_LEVEL(avx2, DecodeTuplesKernels, kDecodeTuples)
CBT_DECLARE_AT_LEVEL(avx512, DecodeTuplesKernels, kDecodeTuples)

}  // namespace cbt::simd

#endif  // CBT_SIMD_DECODE_TUPLES_H_

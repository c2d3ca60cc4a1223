// Kernel family encode_tuples: encodes (offset, size) pairs as protobuf bytes.
//
// Contract header: instruction-set files include it, so nothing in it is inline.
#ifndef CBT_SIMD_ENCODE_TUPLES_H_
#define CBT_SIMD_ENCODE_TUPLES_H_

#include <cstddef>
#include <cstdint>

#include "simd/dispatch/levels.h"

namespace cbt::simd {

// The maximum size of a tuple: tag, length, and two fields of a tag and nine bytes of varint.
inline constexpr size_t kTupleBytes = 22;

// The result of a call.
struct TupleScan {
  size_t tuples;  // tuples processed
  size_t bytes;   // their bytes
};

// Writes tuples to `out` as `0x1a len (0x08 offset)? (0x10 length)?` with values as varints, zero
// values omitted, while at least kTupleBytes of `room` are left. May overwrite bytes of `out` past
// the result, but none past `room`.
// Requires: every value < 2^63.
using EncodeTuplesFn = TupleScan(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                                 uint8_t* out, size_t room) noexcept;

struct EncodeTuplesKernels {
  EncodeTuplesFn* encode;
};

CBT_DECLARE_AT_LEVEL(scalar, EncodeTuplesKernels, kEncodeTuples)
CBT_DECLARE_AT_LEVEL(avx2, EncodeTuplesKernels, kEncodeTuples)
CBT_DECLARE_AT_LEVEL(avx512, EncodeTuplesKernels, kEncodeTuples)

}  // namespace cbt::simd

#endif  // CBT_SIMD_ENCODE_TUPLES_H_

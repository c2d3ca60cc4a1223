// Kernel family encode_tuples: (offset, size) pairs to protobuf bytes.
//
// Contract header: instruction-set files include it, so it holds nothing inline.
#ifndef CBT_SIMD_ENCODE_TUPLES_H_
#define CBT_SIMD_ENCODE_TUPLES_H_

#include <cstddef>
#include <cstdint>

namespace cbt::simd {

// The most bytes one tuple takes: tag, length, and two fields of a tag and nine bytes of varint.
inline constexpr size_t kTupleBytes = 22;

// What one call did.
struct TupleScan {
  size_t tuples;  // tuples written
  size_t bytes;   // bytes they took
};

// Writes tuples to `out` as `0x1a len (0x08 offset)? (0x10 length)?` with values as varints,
// zero values left out, while at least kTupleBytes of `room` are left. Bytes of `out` after what is
// returned may be overwritten, none after `room`.
// Requires: every value < 2^63.
using EncodeTuplesFn = TupleScan(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                                 uint8_t* out, size_t room) noexcept;

struct EncodeTuplesKernels {
  EncodeTuplesFn* encode;
};

namespace scalar {
extern const EncodeTuplesKernels kEncodeTuples;
}
namespace avx2 {
extern const EncodeTuplesKernels kEncodeTuples;
}
namespace avx512 {
extern const EncodeTuplesKernels kEncodeTuples;
}

}  // namespace cbt::simd

#endif  // CBT_SIMD_ENCODE_TUPLES_H_

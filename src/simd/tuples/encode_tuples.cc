// Scalar reference of encode_tuples, the list of its variants, and the choice between them.
#include "simd/tuples/encode_tuples.h"

#include <cstring>

#include "simd/dispatch/variants.h"

namespace cbt::simd {
namespace scalar {
namespace {

uint8_t* Varint(uint64_t value, uint8_t* out) noexcept {
  while (value >= 0x80) {
    *out++ = static_cast<uint8_t>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<uint8_t>(value);
  return out;
}

TupleScan Encode(const uint64_t* offsets, const uint64_t* lengths, size_t count, uint8_t* out,
                 size_t room) noexcept {
  size_t written = 0;
  size_t i = 0;
  for (; i < count && room - written >= kTupleBytes; ++i) {
    uint8_t* const tuple = out + written;
    uint8_t* p = tuple + 2;
    if (offsets[i] != 0) {
      *p++ = 0x08;
      p = Varint(offsets[i], p);
    }
    if (lengths[i] != 0) {
      *p++ = 0x10;
      p = Varint(lengths[i], p);
    }
    tuple[0] = 0x1a;
    tuple[1] = static_cast<uint8_t>(p - tuple - 2);
    written += static_cast<size_t>(p - tuple);
  }
  return {i, written};
}

}  // namespace

const EncodeTuplesKernels kEncodeTuples = {&Encode};

}  // namespace scalar

namespace {

// Every length of varint in both fields, single and repeated.
bool KnownAnswer(const EncodeTuplesKernels& candidate) noexcept {
  constexpr size_t kCount = size_t{64} * 3;
  uint64_t offsets[kCount];
  uint64_t lengths[kCount];
  for (size_t i = 0; i < kCount; ++i) {
    const uint64_t power = uint64_t{1} << (i / 3 % 63);
    offsets[i] = power - 1 + i % 2;
    lengths[kCount - 1 - i] = power + i % 3 - 1;
    if (i % 24 >= 8) {
      offsets[i] = (power & 0x1ffffffffffffu) | 3;
      lengths[i] = (uint64_t{1} << (i % 35)) | 1;
    }
  }
  uint8_t want[kCount * kTupleBytes];
  uint8_t got[kCount * kTupleBytes];
  const TupleScan expected =
      scalar::kEncodeTuples.encode(offsets, lengths, kCount, want, sizeof(want));
  const TupleScan scan = candidate.encode(offsets, lengths, kCount, got, sizeof(got));
  return scan.tuples == expected.tuples && scan.bytes == expected.bytes &&
         std::memcmp(got, want, expected.bytes) == 0;
}

}  // namespace

CBT_DEFINE_KERNELS(EncodeTuples, CBT_SCALAR_VARIANT(kEncodeTuples)
                                     CBT_AVX2_VARIANT_IF(kEncodeTuples, &HasFastPdep)
                                         CBT_AVX512_VARIANT(kEncodeTuples))

}  // namespace cbt::simd

// Scalar reference of decode_tuples, the list of its variants, and the choice between them.
#include "simd/tuples/decode_tuples.h"

#include <cstring>

#include "simd/dispatch/variants.h"

namespace cbt::simd {
namespace scalar {
namespace {

// Reads a varint of at most eight bytes that ends before `end`; null if missing.
const uint8_t* ReadVarint(const uint8_t* p, const uint8_t* end, uint64_t& value) noexcept {
  value = 0;
  for (unsigned i = 0; i < 8 && p != end; ++i) {
    const uint8_t byte = *p++;
    value |= uint64_t{byte & 0x7fu} << (7 * i);
    if ((byte & 0x80) == 0) return p;
  }
  return nullptr;
}

TupleScan Decode(const uint8_t* in, size_t bytes, uint64_t* offsets, uint64_t* lengths,
                 size_t room) noexcept {
  const uint8_t* p = in;
  const uint8_t* const end = in + bytes;
  size_t i = 0;
  for (; i < room && end - p >= 2; ++i) {
    const size_t content = p[1];
    if (p[0] != 0x1a || content >= 0x80 || static_cast<size_t>(end - p) - 2 < content) break;
    const uint8_t* const element_end = p + 2 + content;
    const uint8_t* q = p + 2;
    uint64_t offset = 0;
    uint64_t length = 0;
    if (q == element_end || *q != 0x08) break;
    q = ReadVarint(q + 1, element_end, offset);
    if (q == nullptr || q == element_end || *q != 0x10) break;
    q = ReadVarint(q + 1, element_end, length);
    if (q != element_end) break;
    offsets[i] = offset;
    lengths[i] = length;
    p = element_end;
  }
  return {i, static_cast<size_t>(p - in)};
}

}  // namespace

const DecodeTuplesKernels kDecodeTuples = {&Decode};

}  // namespace scalar

namespace {

// Every supported length of varint, in both fields, and trailing bytes.
bool KnownAnswer(const DecodeTuplesKernels& candidate) noexcept {
  constexpr size_t kCount = 64;
  uint64_t offsets[kCount];
  uint64_t lengths[kCount];
  for (size_t i = 0; i < kCount; ++i) {
    offsets[i] = (uint64_t{1} << (i % 56)) + i % 2;
    lengths[kCount - 1 - i] = (uint64_t{1} << (i % 56)) | 1;
  }
  uint8_t bytes[kCount * kTupleBytes + 8] = {};
  const size_t size =
      scalar::kEncodeTuples.encode(offsets, lengths, kCount, bytes, kCount * kTupleBytes).bytes;
  uint64_t got_offsets[kCount];
  uint64_t got_lengths[kCount];
  for (size_t cut = 0; cut < 40; ++cut) {
    const TupleScan want =
        scalar::kDecodeTuples.decode(bytes, size + 8 - cut, got_offsets, got_lengths, kCount);
    const TupleScan got = candidate.decode(bytes, size + 8 - cut, got_offsets, got_lengths, kCount);
    if (got.tuples != want.tuples || got.bytes != want.bytes ||
        std::memcmp(got_offsets, offsets, got.tuples * sizeof(uint64_t)) != 0 ||
        std::memcmp(got_lengths, lengths, got.tuples * sizeof(uint64_t)) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

CBT_DEFINE_KERNELS(DecodeTuples, CBT_SCALAR_VARIANT(kDecodeTuples)
                                     CBT_AVX2_VARIANT_IF(kDecodeTuples, &HasFastPdep)
                                         CBT_AVX512_VARIANT(kDecodeTuples))

}  // namespace cbt::simd

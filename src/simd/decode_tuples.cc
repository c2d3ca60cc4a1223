// Scalar references of decode_tuples and check_tuples, the lists of their variants, and the choice
// between them.
#include "simd/decode_tuples.h"

#include <cstring>

#include "simd/dispatch.h"
#include "simd/kernels.h"

namespace cbt::simd {
namespace scalar {
namespace {

// Reads a varint of at most eight bytes that ends before `end`; null when there is none.
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

TupleCheck Check(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                 const TupleRules& rules) noexcept {
  TupleCheck check{true, 0};
  uint64_t floor = rules.floor;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t end = offsets[i] + lengths[i];
    check.sound = check.sound && offsets[i] >= floor && offsets[i] < rules.capacity &&
                  end <= rules.most_end && lengths[i] != 0 &&
                  (rules.size == 0 || lengths[i] == rules.size);
    check.bytes += lengths[i];
    floor = end;
  }
  return check;
}

}  // namespace

const DecodeTuplesKernels kDecodeTuples = {&Decode};
const CheckTuplesKernels kCheckTuples = {&Check};

}  // namespace scalar

namespace {

constexpr Variant<DecodeTuplesKernels> kDecodeVariants[] = {
    {SimdLevel::kScalar, &scalar::kDecodeTuples},
#ifdef CBT_HAVE_AVX2
    {SimdLevel::kAvx2, &avx2::kDecodeTuples, &HasFastPdep},
#endif
#ifdef CBT_HAVE_AVX512
    {SimdLevel::kAvx512, &avx512::kDecodeTuples},
#endif
};

constexpr Variant<CheckTuplesKernels> kCheckVariants[] = {
    {SimdLevel::kScalar, &scalar::kCheckTuples},
#ifdef CBT_HAVE_SSE42
    {SimdLevel::kSse42, &sse42::kCheckTuples},
#endif
#ifdef CBT_HAVE_AVX2
    {SimdLevel::kAvx2, &avx2::kCheckTuples},
#endif
#ifdef CBT_HAVE_AVX512
    {SimdLevel::kAvx512, &avx512::kCheckTuples},
#endif
#ifdef CBT_HAVE_NEON
    {SimdLevel::kNeon, &neon::kCheckTuples},
#endif
};

// Every length of varint that is taken, in both fields, and what comes after them.
bool DecodesRight(const DecodeTuplesKernels& candidate) noexcept {
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

// Sound tuples, then one fault after the other.
bool ChecksRight(const CheckTuplesKernels& candidate) noexcept {
  constexpr size_t kCount = 21;
  for (size_t fault = 0; fault <= 3 * kCount; ++fault) {
    uint64_t offsets[kCount];
    uint64_t lengths[kCount];
    for (size_t i = 0; i < kCount; ++i) {
      offsets[i] = 10 * i;
      lengths[i] = 10;
    }
    if (fault % 3 == 0) lengths[fault / 3 % kCount] = fault == 3 * kCount ? 10 : 0;
    if (fault % 3 == 1) lengths[fault / 3] = 11;
    if (fault % 3 == 2) offsets[fault / 3] -= 1;
    for (const uint64_t size : {uint64_t{0}, uint64_t{10}}) {
      const TupleRules rules{0, 10 * kCount, 10 * kCount, size};
      const TupleCheck want = scalar::kCheckTuples.check(offsets, lengths, kCount, rules);
      const TupleCheck got = candidate.check(offsets, lengths, kCount, rules);
      if (got.sound != want.sound || got.bytes != want.bytes) return false;
    }
  }
  return true;
}

const Variant<DecodeTuplesKernels>& ChosenDecode() noexcept {
  static const Variant<DecodeTuplesKernels>& chosen =
      Choose<DecodeTuplesKernels>(kDecodeVariants, &DecodesRight);
  return chosen;
}

const Variant<CheckTuplesKernels>& ChosenCheck() noexcept {
  static const Variant<CheckTuplesKernels>& chosen =
      Choose<CheckTuplesKernels>(kCheckVariants, &ChecksRight);
  return chosen;
}

}  // namespace

std::span<const Variant<DecodeTuplesKernels>> DecodeTuplesVariants() noexcept {
  return kDecodeVariants;
}
SimdLevel DecodeTuplesLevel() noexcept { return ChosenDecode().level; }
const DecodeTuplesKernels& DecodeTuples() noexcept { return *ChosenDecode().kernels; }

std::span<const Variant<CheckTuplesKernels>> CheckTuplesVariants() noexcept {
  return kCheckVariants;
}
SimdLevel CheckTuplesLevel() noexcept { return ChosenCheck().level; }
const CheckTuplesKernels& CheckTuples() noexcept { return *ChosenCheck().kernels; }

}  // namespace cbt::simd

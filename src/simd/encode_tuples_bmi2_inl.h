// Body of encode_tuples for levels with BMI2: pdep spreads a value's bits to the low seven bits of
// eight bytes. Included by isa_<level>.cc inside no namespace, once; the level's table is defined
// here unless a wider body follows.
#include <immintrin.h>

#include "simd/encode_tuples.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace encode_tuples {

constexpr uint64_t kMoreBits = 0x8080808080808080u;
constexpr uint64_t kValueBits = 0x7f7f7f7f7f7f7f7fu;

// The length of a value's varint, 1 .. 9: its bits divided by 7, rounded up.
static inline uint64_t VarintBytes(uint64_t value) noexcept {
  const auto bits = static_cast<uint64_t>(64 - __builtin_clzll(value | 1));
  return (bits * 9 + 64) >> 6;
}

// The varint of a value below 2^56, in the low `bytes` bytes.
static inline uint64_t SpreadVarint(uint64_t value, uint64_t bytes) noexcept {
  // A continuation bit on every byte but the last.
  return _pdep_u64(value, kValueBits) | (kMoreBits & ((uint64_t{1} << (8 * (bytes - 1))) - 1));
}

// Writes `value` (> 0) with stores of eight bytes; returns the end.
static inline uint8_t* AppendVarint(uint64_t value, uint8_t* out) noexcept {
  const uint64_t bytes = VarintBytes(value);
  if (value >> 56 == 0) {
    const uint64_t varint = SpreadVarint(value, bytes);
    __builtin_memcpy(out, &varint, 8);
    return out + bytes;
  }
  const uint64_t varint = _pdep_u64(value, kValueBits) | kMoreBits;
  __builtin_memcpy(out, &varint, 8);
  out[8] = static_cast<uint8_t>(value >> 56);
  return out + 9;
}

static TupleScan Encode(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                        uint8_t* out, size_t room) noexcept {
  uint8_t* p = out;
  const uint8_t* const end = out + room;
  size_t i = 0;
  for (; i < count && static_cast<size_t>(end - p) >= kTupleBytes; ++i) {
    const uint64_t offset = offsets[i];
    const uint64_t length = lengths[i];
    // Neither value is zero, which is omitted, or longer than eight bytes: one branch for both, and
    // no store depends on the position of another.
    if (__builtin_expect(
            (offset - 1) >> 56 == 0 && (length - 1) >> 56 == 0 && (offset | length) >> 56 == 0,
            1)) {
      const uint64_t offset_bytes = VarintBytes(offset);
      const uint64_t length_bytes = VarintBytes(length);
      const uint64_t offset_varint = SpreadVarint(offset, offset_bytes);
      const uint64_t length_varint = SpreadVarint(length, length_bytes);
      const auto head = static_cast<uint32_t>(0x08001a | (offset_bytes + length_bytes + 2) << 8);
      __builtin_memcpy(p, &head, 4);
      __builtin_memcpy(p + 3, &offset_varint, 8);
      p[3 + offset_bytes] = 0x10;
      __builtin_memcpy(p + 4 + offset_bytes, &length_varint, 8);
      p += 4 + offset_bytes + length_bytes;
      continue;
    }
    uint8_t* const tuple = p;
    p += 2;
    if (offset != 0) {
      *p++ = 0x08;
      p = AppendVarint(offset, p);
    }
    if (length != 0) {
      *p++ = 0x10;
      p = AppendVarint(length, p);
    }
    tuple[0] = 0x1a;
    tuple[1] = static_cast<uint8_t>(p - tuple - 2);
  }
  return {i, static_cast<size_t>(p - out)};
}

}  // namespace encode_tuples

#if !defined(__AVX512VBMI2__)
extern const EncodeTuplesKernels kEncodeTuples;
const EncodeTuplesKernels kEncodeTuples = {&encode_tuples::Encode};
#endif

}  // namespace cbt::simd::CBT_ISA_NAMESPACE

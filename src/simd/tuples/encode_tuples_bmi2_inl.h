// Body of encode_tuples for levels with BMI2: pdep spreads a value's bits to the low seven bits of
// eight bytes. Included by isa_<level>.cc inside no namespace, once; the level's table is defined
// here unless a wider body follows.
#include <immintrin.h>

#include "simd/tuples/encode_tuples.h"

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

// Tuples that are judged together.
constexpr size_t kChunk = 32;

// What the tuples of a chunk have in common. Neighbours of a stream mostly have offsets of one
// length, and blocks have one size.
struct Common {
  uint64_t offset_bytes;  // of every offset's varint, 1 .. 8; 0: they differ or need another form
  bool one_length;        // every length is that of the first tuple
};

static inline Common Judge(const uint64_t* offsets, const uint64_t* lengths) noexcept {
  const uint64_t bytes = VarintBytes(offsets[0]);
  // All values are below 2^63: signed comparisons, which every level has.
  const auto least = static_cast<int64_t>(uint64_t{1} << (7 * (bytes - 1)));
  const auto limit = static_cast<int64_t>(uint64_t{1} << (7 * (bytes < 8 ? bytes : 8)));
  constexpr int64_t kLengthLimit = int64_t{1} << 49;
  int64_t bad = 0;
  uint64_t different = 0;
  for (size_t i = 0; i < kChunk; ++i) {
    const auto offset = static_cast<int64_t>(offsets[i]);
    const auto length = static_cast<int64_t>(lengths[i]);
    // Negative if a value is out of its range.
    bad |= (offset - least) | (limit - 1 - offset) | (length - 1) | (kLengthLimit - 1 - length);
    different |= lengths[i] ^ lengths[0];
  }
  return {bad >= 0 && bytes <= 8 ? bytes : 0, different == 0};
}

// Writes kChunk tuples whose offsets have varints of `offset_bytes` and whose lengths are 1 ..
// 2^49 - 1, where kChunk * kTupleBytes bytes are writable; returns the end. kOneLength: the lengths
// are equal, so that no tuple's place depends on the one before it.
template <bool kOneLength>
static inline uint8_t* EncodeChunk(const uint64_t* offsets, const uint64_t* lengths,
                                   uint64_t offset_bytes, uint8_t* out) noexcept {
  const uint64_t more = kMoreBits & ((uint64_t{1} << (8 * (offset_bytes - 1))) - 1);
  uint64_t length_bytes = VarintBytes(lengths[0]);
  // The tag and the varint of the length.
  uint64_t tail = 0x10 | SpreadVarint(lengths[0], length_bytes) << 8;
  for (size_t i = 0; i < kChunk; ++i) {
    if (!kOneLength) {
      length_bytes = VarintBytes(lengths[i]);
      tail = 0x10 | SpreadVarint(lengths[i], length_bytes) << 8;
    }
    const auto head = static_cast<uint32_t>(0x08001a | (offset_bytes + length_bytes + 2) << 8);
    const uint64_t varint = _pdep_u64(offsets[i], kValueBits) | more;
    __builtin_memcpy(out, &head, 4);
    __builtin_memcpy(out + 3, &varint, 8);
    __builtin_memcpy(out + 3 + offset_bytes, &tail, 8);
    out += 4 + offset_bytes + length_bytes;
  }
  return out;
}

// Writes one tuple; returns the end.
static inline uint8_t* EncodeOne(uint64_t offset, uint64_t length, uint8_t* p) noexcept {
  // Neither value is zero, which is omitted, or longer than eight bytes: one branch for both, and
  // no store depends on the position of another.
  if (__builtin_expect(
          (offset - 1) >> 56 == 0 && (length - 1) >> 56 == 0 && (offset | length) >> 56 == 0, 1)) {
    const uint64_t offset_bytes = VarintBytes(offset);
    const uint64_t length_bytes = VarintBytes(length);
    const uint64_t offset_varint = SpreadVarint(offset, offset_bytes);
    const uint64_t length_varint = SpreadVarint(length, length_bytes);
    const auto head = static_cast<uint32_t>(0x08001a | (offset_bytes + length_bytes + 2) << 8);
    __builtin_memcpy(p, &head, 4);
    __builtin_memcpy(p + 3, &offset_varint, 8);
    p[3 + offset_bytes] = 0x10;
    __builtin_memcpy(p + 4 + offset_bytes, &length_varint, 8);
    return p + 4 + offset_bytes + length_bytes;
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
  return p;
}

static TupleScan Encode(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                        uint8_t* out, size_t room) noexcept {
  uint8_t* p = out;
  const uint8_t* const end = out + room;
  size_t i = 0;
  while (count - i >= kChunk && static_cast<size_t>(end - p) >= kChunk * kTupleBytes) {
    const Common common = Judge(offsets + i, lengths + i);
    if (common.offset_bytes == 0) {
      for (size_t k = 0; k < kChunk; ++k) p = EncodeOne(offsets[i + k], lengths[i + k], p);
    } else if (common.one_length) {
      p = EncodeChunk<true>(offsets + i, lengths + i, common.offset_bytes, p);
    } else {
      p = EncodeChunk<false>(offsets + i, lengths + i, common.offset_bytes, p);
    }
    i += kChunk;
  }
  for (; i < count && static_cast<size_t>(end - p) >= kTupleBytes; ++i) {
    p = EncodeOne(offsets[i], lengths[i], p);
  }
  return {i, static_cast<size_t>(p - out)};
}

}  // namespace encode_tuples

#if !defined(__AVX512VBMI2__)
extern const EncodeTuplesKernels kEncodeTuples;
const EncodeTuplesKernels kEncodeTuples = {&encode_tuples::Encode};
#endif

}  // namespace cbt::simd::CBT_ISA_NAMESPACE

// Body of encode_tuples for levels with BMI2: pdep deals a value's bits out to the low seven bits
// of eight bytes at once, so a varint costs a handful of instructions and no loop. (pdep is slow on
// AMD before Zen 3; it still beats the loop there for the offsets of large volumes.) Included by
// isa_<level>.cc inside no namespace, once.
#include <immintrin.h>

#include "simd/encode_tuples.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace encode_tuples {

// Writes `value` (> 0) as a varint with stores of eight bytes; returns the end.
static inline uint8_t* Varint(uint64_t value, uint8_t* out) noexcept {
  constexpr uint64_t kSeven = 0x7f7f7f7f7f7f7f7fu;
  constexpr uint64_t kMore = 0x8080808080808080u;
  const unsigned bits = 64 - static_cast<unsigned>(__builtin_clzll(value));
  const unsigned bytes = (bits + 6) / 7;
  const uint64_t spread = _pdep_u64(value, kSeven);
  if (__builtin_expect(bits <= 56, 1)) {
    // A continuation bit on every byte but the last.
    const uint64_t varint = spread | (kMore & ((uint64_t{1} << (8 * (bytes - 1))) - 1));
    __builtin_memcpy(out, &varint, 8);
    return out + bytes;
  }
  const uint64_t varint = spread | kMore;
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
    uint8_t* const tuple = p;
    p += 2;
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
  }
  return {i, static_cast<size_t>(p - out)};
}

}  // namespace encode_tuples

extern const EncodeTuplesKernels kEncodeTuples;
const EncodeTuplesKernels kEncodeTuples = {&encode_tuples::Encode};

}  // namespace cbt::simd::CBT_ISA_NAMESPACE

// Body of decode_tuples for levels with BMI2: pext gathers all bits of a varint. Included by
// isa_<level>.cc inside no namespace, once; the level's table is defined here unless a wider body
// follows.
#include <immintrin.h>

#include "simd/tuples/decode_tuples.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace decode_tuples {

static inline uint64_t Load(const uint8_t* from) noexcept {
  uint64_t word;
  __builtin_memcpy(&word, from, sizeof(word));
  return word;
}

// The value of the varint that begins in the low byte of `word`. `end_bit`: eight times its length
// minus one, the index of the first clear continuation bit; 64 if all eight are set.
static inline uint64_t Take(uint64_t word, uint64_t& end_bit) noexcept {
  constexpr uint64_t kValueBits = 0x7f7f7f7f7f7f7f7fu;
  const uint64_t ends = ~word & ~kValueBits;
  end_bit = _tzcnt_u64(ends);
  return _pext_u64(word, (ends ^ (ends - 1)) & kValueBits);
}

// The most bytes of a tuple that are read: the head, a first varint that does not end, a tag, and
// eight bytes.
constexpr size_t kReach = 3 + 9 + 1 + 8;

// Reads the tuple at `from`, where kReach bytes are readable, and whose length byte is `content`.
// Returns 0 if it has the usual encoding; otherwise the outputs are meaningless.
static inline uint64_t Read(const uint8_t* from, uint64_t content, uint64_t& offset,
                            uint64_t& length) noexcept {
  uint64_t first_end;
  offset = Take(Load(from + 3), first_end);
  const uint8_t* const second = from + 4 + (first_end >> 3);
  uint64_t second_end;
  length = Take(Load(second + 1), second_end);
  uint32_t head;
  __builtin_memcpy(&head, from, sizeof(head));
  // Checks the tags, the length (8 c1 - 1 + 8 c2 - 1 + 2 * 8 + 2 is eight times it), and that both
  // varints end.
  return ((head & 0xff00ff) ^ 0x08001a) | (*second ^ 0x10u) |
         ((content * 8) ^ (first_end + second_end + 18)) | ((first_end | second_end) & 64);
}

// The bits of the lowest `bytes` (1 .. 8) bytes.
static inline uint64_t LowBytes(uint64_t bytes) noexcept {
  return _bzhi_u64(~uint64_t{0}, static_cast<unsigned>(8 * bytes));
}

// Reads tuples whose varints have the same lengths as those of the tuple at `from`, which Read()
// found to be usual, in groups of kGroup; `most`: tuples that may be read, with kReach bytes from
// the last one readable. Their places follow from the first, so that none waits for another.
// Returns the tuples read, that one included.
constexpr size_t kGroup = 4;
static inline size_t ReadAlike(const uint8_t* from, size_t most, uint64_t* offsets,
                               uint64_t* lengths) noexcept {
  constexpr uint64_t kValueBits = 0x7f7f7f7f7f7f7f7fu;
  const uint64_t size = uint64_t{2} + from[1];
  uint64_t first_end;
  Take(Load(from + 3), first_end);
  const uint64_t first_bytes = (first_end >> 3) + 1;
  const uint64_t second_bytes = size - 4 - first_bytes;
  if (second_bytes > 7) return 1;
  // What the continuation bits, the tags and the length must be, and where they are.
  const uint64_t head = Load(from) & 0xffffff;
  const uint64_t first_mask = ~kValueBits & LowBytes(first_bytes);
  const uint64_t first_bits = Load(from + 3) & first_mask;
  const uint64_t first_value = kValueBits & LowBytes(first_bytes);
  const uint64_t second_mask = (~kValueBits & LowBytes(1 + second_bytes)) | 0xff;
  const uint64_t second_bits = Load(from + 3 + first_bytes) & second_mask;
  const uint64_t second_value = kValueBits & LowBytes(1 + second_bytes) & ~uint64_t{0xff};
  size_t i = 1;
  for (; most - i >= kGroup; i += kGroup) {
    uint64_t wrong = 0;
    for (size_t k = 0; k < kGroup; ++k) {
      const uint8_t* const p = from + (i + k) * size;
      const uint64_t first = Load(p + 3);
      const uint64_t second = Load(p + 3 + first_bytes);
      wrong |= ((Load(p) & 0xffffff) ^ head) | ((first & first_mask) ^ first_bits) |
               ((second & second_mask) ^ second_bits);
      offsets[i + k] = _pext_u64(first, first_value);
      lengths[i + k] = _pext_u64(second, second_value);
    }
    if (wrong != 0) break;
  }
  return i;
}

static TupleScan Decode(const uint8_t* in, size_t bytes, uint64_t* offsets, uint64_t* lengths,
                        size_t room) noexcept {
  const uint8_t* p = in;
  const uint8_t* const end = in + bytes;
  size_t i = 0;
  // The length byte locates the next tuple, without waiting for the varints. Hide from the compiler
  // that the two agree: it would use the varints.
  const auto behind = [](const uint8_t* from, uint64_t content) {
    asm("" : "+r"(content));
    return from + 2 + content;
  };
  // No valid tuple is longer than kReach, but the length byte of the previous one may claim so.
  constexpr size_t kMaxByLength = 2 + 255;
  // Pairs to read before the next attempt to read tuples that are alike.
  size_t pause = 0;
  while (room - i >= 2 && static_cast<size_t>(end - p) >= kMaxByLength + kReach) {
    const uint64_t content = p[1];
    const uint8_t* const next = behind(p, content);
    const uint64_t next_content = next[1];
    const uint64_t wrong = Read(p, content, offsets[i], lengths[i]);
    const uint64_t next_wrong = Read(next, next_content, offsets[i + 1], lengths[i + 1]);
    if (__builtin_expect((wrong | next_wrong) != 0, 0)) break;
    i += 2;
    if (pause > 0 || content != next_content) {
      p = behind(next, next_content);
      pause -= pause > 0 ? 1 : 0;
      continue;
    }
    const size_t within = (static_cast<size_t>(end - next) - kReach) / (2 + content) + 1;
    const size_t most = within < room - i + 1 ? within : room - i + 1;
    const size_t alike = ReadAlike(next, most, offsets + i - 1, lengths + i - 1);
    i += alike - 1;
    p = next + alike * (2 + content);
    if (alike < 4 * kGroup) pause = 4 * kGroup;
  }
  // The rest one by one, from a zero-padded copy near the end, so that nothing past the end is
  // read.
  while (i < room && p != end) {
    uint8_t copy[kReach] = {};
    const auto left = static_cast<size_t>(end - p);
    __builtin_memcpy(copy, p, left < kReach ? left : kReach);
    const uint64_t content = copy[1];
    uint64_t offset;
    uint64_t length;
    if (Read(copy, content, offset, length) != 0 || content + 2 > left) break;
    offsets[i] = offset;
    lengths[i] = length;
    ++i;
    p += content + 2;
  }
  return {i, static_cast<size_t>(p - in)};
}

}  // namespace decode_tuples

#if !defined(__AVX512VBMI2__)
extern const DecodeTuplesKernels kDecodeTuples;
const DecodeTuplesKernels kDecodeTuples = {&decode_tuples::Decode};
#endif

}  // namespace cbt::simd::CBT_ISA_NAMESPACE

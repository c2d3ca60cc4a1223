// Body of run_edges for every SIMD level. Included by isa_<level>.cc inside no namespace, once.
#include <xsimd/xsimd.hpp>

#include "simd/run_edges.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace run_edges {

using Words = xsimd::batch<uint64_t, CBT_ISA_ARCH>;

// Every operation twice: on words, and on vectors of them.
struct Single {
  static constexpr bool kBinary = false;
  template <typename T>
  static T Apply(const T& a, const T&) {
    return a;
  }
};
struct Exclusive {
  static constexpr bool kBinary = true;
  template <typename T>
  static T Apply(const T& a, const T& b) {
    return a ^ b;
  }
};
struct AndNot {
  static constexpr bool kBinary = true;
  // Written out: bitwise_andnot() of xsimd swaps its operands between versions and machines.
  template <typename T>
  static T Apply(const T& a, const T& b) {
    return b & ~a;
  }
};
struct Either {
  static constexpr bool kBinary = true;
  template <typename T>
  static T Apply(const T& a, const T& b) {
    return a | b;
  }
};
struct Both {
  static constexpr bool kBinary = true;
  template <typename T>
  static T Apply(const T& a, const T& b) {
    return a & b;
  }
};

static inline uint64_t LoadWord(const uint8_t* bytes) noexcept {
  uint64_t word;
  __builtin_memcpy(&word, bytes, sizeof(word));
  return word;
}

static inline Words LoadWords(const uint8_t* bytes) noexcept {
  return Words::load_unaligned(reinterpret_cast<const uint64_t*>(bytes));
}

template <typename Op>
EdgeScan Scan(const uint8_t* a, const uint8_t* b, size_t words, uint64_t position, uint64_t carry,
              uint64_t* edges, size_t room) noexcept {
  // Four vectors a step: enough independent loads to keep the memory pipeline full, and one branch
  // for all of them where nothing changes.
  constexpr size_t kStep = 4 * Words::size;
  uint64_t* out = edges;
  const uint64_t* const full = edges + (room - kEdgesPerWord);
  size_t i = 0;
  while (i < words) {
    // Also before words that may be quiet, so that every variant stops at the same one.
    if (out > full) return {i, static_cast<size_t>(out - edges)};
    while (words - i >= kStep) {
      const Words fill(uint64_t{0} - carry);
      const uint8_t* pa = a + i * 8;
      const uint8_t* pb = Op::kBinary ? b + i * 8 : pa;
      constexpr size_t kBytes = Words::size * 8;
      const Words w0 = Op::template Apply<Words>(LoadWords(pa), LoadWords(pb)) ^ fill;
      const Words w1 =
          Op::template Apply<Words>(LoadWords(pa + kBytes), LoadWords(pb + kBytes)) ^ fill;
      const Words w2 =
          Op::template Apply<Words>(LoadWords(pa + 2 * kBytes), LoadWords(pb + 2 * kBytes)) ^ fill;
      const Words w3 =
          Op::template Apply<Words>(LoadWords(pa + 3 * kBytes), LoadWords(pb + 3 * kBytes)) ^ fill;
      if (xsimd::any(((w0 | w1) | (w2 | w3)) != Words(uint64_t{0}))) break;
      i += kStep;
    }
    // Something changes within this step: one vector of it, which may be quiet itself, or the last
    // words.
    const bool whole = words - i >= Words::size;
    const size_t stop = whole ? i + Words::size : words;
    if (whole) {
      const Words fill(uint64_t{0} - carry);
      const uint8_t* pa = a + i * 8;
      const uint8_t* pb = Op::kBinary ? b + i * 8 : pa;
      const Words vector = Op::template Apply<Words>(LoadWords(pa), LoadWords(pb)) ^ fill;
      if (!xsimd::any(vector != Words(uint64_t{0}))) {
        i = stop;
        continue;
      }
    }
    for (; i < stop; ++i) {
      if (out > full) return {i, static_cast<size_t>(out - edges)};
      const uint64_t word_a = LoadWord(a + i * 8);
      const uint64_t word =
          Op::template Apply<uint64_t>(word_a, Op::kBinary ? LoadWord(b + i * 8) : word_a);
      uint64_t changes = word ^ (word << 1 | carry);
      carry = word >> 63;
      const uint64_t base = position + i * 64;
      while (changes != 0) {
        *out++ = base + static_cast<uint64_t>(__builtin_ctzll(changes));
        changes &= changes - 1;
      }
    }
  }
  return {words, static_cast<size_t>(out - edges)};
}

}  // namespace run_edges

extern const RunEdgesKernels kRunEdges;
const RunEdgesKernels kRunEdges = {
    &run_edges::Scan<run_edges::Single>, &run_edges::Scan<run_edges::Exclusive>,
    &run_edges::Scan<run_edges::AndNot>, &run_edges::Scan<run_edges::Either>,
    &run_edges::Scan<run_edges::Both>,
};

}  // namespace cbt::simd::CBT_ISA_NAMESPACE

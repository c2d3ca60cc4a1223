// Shared by the bodies that read bitmaps: the operations on two bitmaps, each for words and for
// vectors of words. Included by those bodies inside no namespace.
#ifndef CBT_SIMD_WORD_OPS_INL_H_
#define CBT_SIMD_WORD_OPS_INL_H_

#include <xsimd/xsimd.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace word_ops {

using Words = xsimd::batch<uint64_t, CBT_ISA_ARCH>;

// Each operation works on words and on vectors of words.
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
static inline Words Combine(const uint8_t* a, const uint8_t* b, size_t at) noexcept {
  const Words word_a = LoadWords(a + at);
  return Op::template Apply<Words>(word_a, Op::kBinary ? LoadWords(b + at) : word_a);
}

template <typename Op>
static inline uint64_t CombineWord(const uint8_t* a, const uint8_t* b, size_t at) noexcept {
  const uint64_t word_a = LoadWord(a + at);
  return Op::template Apply<uint64_t>(word_a, Op::kBinary ? LoadWord(b + at) : word_a);
}

// Each lane's predecessor: the last lane of `before`, then all but the last of `now`.
static inline Words Previous(Words before, Words now) noexcept {
#if defined(__AVX512F__)
  return _mm512_alignr_epi64(now, before, 7);
#elif defined(__AVX2__)
  return _mm256_alignr_epi8(now, _mm256_permute2x128_si256(before, now, 0x21), 8);
#elif defined(__SSE4_2__)
  return _mm_alignr_epi8(now, before, 8);
#elif defined(__aarch64__)
  return vextq_u64(before, now, 1);
#endif
}

}  // namespace word_ops
}  // namespace cbt::simd::CBT_ISA_NAMESPACE

#endif  // CBT_SIMD_WORD_OPS_INL_H_

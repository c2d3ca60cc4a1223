// Shared by the bodies that read bitmaps: the operations on two bitmaps, each for words and for
// vectors of words, and readers of bitmaps in any layout. Included by those bodies inside no
// namespace.
#ifndef CBT_SIMD_WORD_OPS_INL_H_
#define CBT_SIMD_WORD_OPS_INL_H_

#include <xsimd/xsimd.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "simd/extract_runs.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace word_ops {

using Words = xsimd::batch<uint64_t, CBT_ISA_ARCH>;

// Each operation works on words and on vectors of words. kLinear: to invert an operand inverts the
// result.
struct Single {
  static constexpr bool kBinary = false;
  static constexpr bool kLinear = true;
  template <typename T>
  static T Apply(const T& a, const T&) {
    return a;
  }
};
struct Exclusive {
  static constexpr bool kBinary = true;
  static constexpr bool kLinear = true;
  template <typename T>
  static T Apply(const T& a, const T& b) {
    return a ^ b;
  }
};
struct AndNot {
  static constexpr bool kBinary = true;
  static constexpr bool kLinear = false;
  // Written out: bitwise_andnot() of xsimd swaps its operands between versions and machines.
  template <typename T>
  static T Apply(const T& a, const T& b) {
    return b & ~a;
  }
};
struct Either {
  static constexpr bool kBinary = true;
  static constexpr bool kLinear = false;
  template <typename T>
  static T Apply(const T& a, const T& b) {
    return a | b;
  }
};
struct Both {
  static constexpr bool kBinary = true;
  static constexpr bool kLinear = false;
  template <typename T>
  static T Apply(const T& a, const T& b) {
    return a & b;
  }
};

#if defined(__AVX512F__)
// Half a vector of words.
struct NarrowWords {
  static NarrowWords Load(const uint8_t* bytes) noexcept {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes))};
  }
  static NarrowWords Fill(uint64_t word) noexcept {
    return {_mm256_set1_epi64x(static_cast<long long>(word))};
  }
  friend NarrowWords operator^(NarrowWords a, NarrowWords b) noexcept {
    return {_mm256_xor_si256(a.lanes, b.lanes)};
  }
  friend NarrowWords operator&(NarrowWords a, NarrowWords b) noexcept {
    return {_mm256_and_si256(a.lanes, b.lanes)};
  }
  friend NarrowWords operator|(NarrowWords a, NarrowWords b) noexcept {
    return {_mm256_or_si256(a.lanes, b.lanes)};
  }
  friend NarrowWords operator~(NarrowWords a) noexcept { return a ^ Fill(~uint64_t{0}); }

  __m256i lanes;
};
#endif

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

// Bit i: lane i is not 0.
static inline unsigned NonZeroLanes(Words lanes) noexcept {
#if defined(__AVX512F__)
  return _mm512_test_epi64_mask(lanes, lanes);
#elif defined(__AVX2__)
  const __m256i zero = _mm256_cmpeq_epi64(lanes, _mm256_setzero_si256());
  return static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(zero))) ^ 15u;
#elif defined(__SSE4_2__)
  const __m128i zero = _mm_cmpeq_epi64(lanes, _mm_setzero_si128());
  return static_cast<unsigned>(_mm_movemask_pd(_mm_castsi128_pd(zero))) ^ 3u;
#elif defined(__aarch64__)
  return (vgetq_lane_u64(lanes, 0) != 0 ? 1u : 0u) | (vgetq_lane_u64(lanes, 1) != 0 ? 2u : 0u);
#endif
}

// The index of the lowest set bit. For 0, any number in 0 .. 127: the surplus stores of the lists
// write it, and it is never read.
static inline uint64_t LowestBit(uint64_t bits) noexcept {
#if defined(__BMI__)
  return _tzcnt_u64(bits);
#else
  return static_cast<uint64_t>(__builtin_ctzll(bits | uint64_t{1} << 63));
#endif
}

// For each byte value, the indexes of its set bits, lowest first, in the bytes of a word.
struct ByteTable {
  uint64_t positions[256];
  constexpr ByteTable() : positions() {
    for (unsigned byte = 0; byte < 256; ++byte) {
      unsigned place = 0;
      for (unsigned bit = 0; bit < 8; ++bit) {
        if ((byte >> bit & 1) != 0) positions[byte] |= uint64_t{bit} << (8 * place++);
      }
    }
  }
};
static constexpr ByteTable kByteTable;

// Whether the highest set bit is found as fast as the lowest one.
#if defined(__LZCNT__) || defined(__aarch64__)
constexpr bool kTakesHighest = true;
#else
constexpr bool kTakesHighest = false;
#endif

// Takes the first set bit off a word: the lowest, or with kDescending the highest. Returns its
// index from that end. Of 0, any number in 0 .. 127: the surplus stores of the lists write it, and
// it is never read.
template <bool kDescending>
static inline uint64_t TakeBit(uint64_t& bits) noexcept {
  if constexpr (kDescending) {
#if defined(__LZCNT__)
    const uint64_t index = _lzcnt_u64(bits);
#else
    const auto index = static_cast<uint64_t>(__builtin_clzll(bits | 1));
#endif
    bits &= ~uint64_t{0} >> 1 >> (index & 63);
    return index;
  }
  const uint64_t index = LowestBit(bits);
  bits &= bits - 1;
  return index;
}

// Reverses the bits of each byte.
static inline Words ReverseBytes(Words words) noexcept {
#if defined(__AVX512VBMI2__) && defined(__GFNI__)
  // The matrix that moves bit i to bit 7 - i.
  return _mm512_gf2p8affine_epi64_epi8(
      words, _mm512_set1_epi64(static_cast<long long>(0x8040201008040201u)), 0);
#elif defined(__AVX2__)
  const __m256i reversed = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15));
  const __m256i nibble = _mm256_set1_epi8(0x0f);
  const __m256i low = _mm256_shuffle_epi8(reversed, _mm256_and_si256(words, nibble));
  const __m256i high =
      _mm256_shuffle_epi8(reversed, _mm256_and_si256(_mm256_srli_epi64(words, 4), nibble));
  return _mm256_or_si256(_mm256_slli_epi64(low, 4), high);
#elif defined(__SSE4_2__)
  const __m128i reversed = _mm_setr_epi8(0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15);
  const __m128i nibble = _mm_set1_epi8(0x0f);
  const __m128i low = _mm_shuffle_epi8(reversed, _mm_and_si128(words, nibble));
  const __m128i high = _mm_shuffle_epi8(reversed, _mm_and_si128(_mm_srli_epi64(words, 4), nibble));
  return _mm_or_si128(_mm_slli_epi64(low, 4), high);
#elif defined(__aarch64__)
  return vreinterpretq_u64_u8(vrbitq_u8(vreinterpretq_u8_u64(words)));
#endif
}

// Moves the bytes of words so that their bits ascend, the first one lowest, or descend.
class ByteOrder {
 public:
  explicit ByteOrder(const BitLayout& layout) noexcept {
    const unsigned from =
        (layout.reversed_word_bytes - 1) ^ (layout.most_significant_first ? 7u : 0u);
    uint8_t places[16];
    for (unsigned i = 0; i < 16; ++i) places[i] = static_cast<uint8_t>(i ^ from);
#if defined(__x86_64__)
    places_ = _mm_loadu_si128(reinterpret_cast<const __m128i*>(places));
#elif defined(__aarch64__)
    places_ = vld1q_u8(places);
#endif
  }

  Words operator()(Words words) const noexcept {
#if defined(__AVX512VBMI2__)
    return _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(places_));
#elif defined(__AVX2__)
    return _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(places_));
#elif defined(__SSE4_2__)
    return _mm_shuffle_epi8(words, places_);
#elif defined(__aarch64__)
    return vreinterpretq_u64_u8(vqtbl1q_u8(vreinterpretq_u8_u64(words), places_));
#endif
  }

  uint64_t operator()(uint64_t word) const noexcept {
#if defined(__x86_64__)
    return static_cast<uint64_t>(_mm_cvtsi128_si64(
        _mm_shuffle_epi8(_mm_cvtsi64_si128(static_cast<long long>(word)), places_)));
#elif defined(__aarch64__)
    const uint8x16_t bytes = vreinterpretq_u8_u64(vdupq_n_u64(word));
    return vgetq_lane_u64(vreinterpretq_u64_u8(vqtbl1q_u8(bytes, places_)), 0);
#endif
  }

 private:
  // For sixteen bytes, the same in every such part of a vector.
#if defined(__x86_64__)
  __m128i places_;
#elif defined(__aarch64__)
  uint8x16_t places_;
#endif
};

// Reverses the order of the bits of each word.
static inline Words ReverseBits(Words words) noexcept {
  BitLayout bytes;
  bytes.reversed_word_bytes = 8;
  return ByteOrder(bytes)(ReverseBytes(words));
}
static inline uint64_t ReverseBits(uint64_t word) noexcept {
#if defined(__x86_64__)
  const __m128i reversed = _mm_setr_epi8(0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15);
  const __m128i nibble = _mm_set1_epi8(0x0f);
  // Low halves of bytes in the lower half, high halves in the upper one.
  const __m128i halves = _mm_and_si128(
      _mm_set_epi64x(static_cast<long long>(word >> 4), static_cast<long long>(word)), nibble);
  const __m128i found = _mm_shuffle_epi8(reversed, halves);
  const auto low = static_cast<uint64_t>(_mm_cvtsi128_si64(found));
  const auto high = static_cast<uint64_t>(_mm_extract_epi64(found, 1));
  return __builtin_bswap64(low << 4 | high);
#elif defined(__aarch64__)
  return __builtin_bswap64(vget_lane_u64(vreinterpret_u64_u8(vrbit_u8(vcreate_u8(word))), 0));
#endif
}

// Readers give the words from byte `at` on:
//   Quiet()    their difference from `fill`, which has equal bits in each word. The order of bits
//              is any: what counts is which words are 0.
//   Narrow()   the words of which Quiet() takes the difference, and NarrowFill() of what
//   Word()     a word, in order
//   Raw...()   the same in order, but perhaps all inverted, which leaves the edges where they are.
//              Raw() of a bit says whether.
// kDescending: the first bit of a word in order is its highest.

template <typename Op>
struct PlainReader {
  static constexpr bool kDescending = false;

  Words Quiet(size_t at, Words fill) const noexcept { return RawVector(at) ^ fill; }
#if defined(__AVX512F__)
  NarrowWords Narrow(size_t at) const noexcept {
    const NarrowWords word_a = NarrowWords::Load(a + at);
    return Op::template Apply<NarrowWords>(word_a,
                                           Op::kBinary ? NarrowWords::Load(b + at) : word_a);
  }
  static NarrowWords NarrowFill(uint64_t fill) noexcept { return NarrowWords::Fill(fill); }
#endif
  uint64_t Word(size_t at) const noexcept { return CombineWord<Op>(a, b, at); }
  Words RawVector(size_t at) const noexcept { return Combine<Op>(a, b, at); }
  uint64_t RawWord(size_t at) const noexcept { return Word(at); }
  static uint64_t Raw(uint64_t bit) noexcept { return bit; }

  const uint8_t* a;
  const uint8_t* b;
};

template <typename Op, bool kMostSignificantFirst>
class LayoutReader {
 public:
  static constexpr bool kDescending = kMostSignificantFirst;

  LayoutReader(const BitLayout& layout, const uint8_t* a, const uint8_t* b) noexcept
      : order_(layout),
        a_(a),
        b_(b),
        flip_(Op::kBinary ? layout.flip_a ^ layout.flip_b : layout.flip_a),
        flip_a_(layout.flip_a),
        flip_b_(layout.flip_b) {}

  Words Quiet(size_t at, Words fill) const noexcept {
    // The difference of both constants does not change within a loop.
    if constexpr (Op::kLinear) return Combine<Op>(a_, b_, at) ^ (fill ^ Words(flip_));
    return Combined(at) ^ fill;
  }
#if defined(__AVX512F__)
  NarrowWords Narrow(size_t at) const noexcept {
    NarrowWords word_a = NarrowWords::Load(a_ + at);
    NarrowWords word_b = Op::kBinary ? NarrowWords::Load(b_ + at) : word_a;
    if constexpr (!Op::kLinear) {
      word_a = word_a ^ NarrowWords::Fill(flip_a_);
      word_b = word_b ^ NarrowWords::Fill(flip_b_);
    }
    return Op::template Apply<NarrowWords>(word_a, word_b);
  }
  NarrowWords NarrowFill(uint64_t fill) const noexcept {
    return NarrowWords::Fill(Op::kLinear ? fill ^ flip_ : fill);
  }
#endif
  uint64_t Word(size_t at) const noexcept {
    return RawWord(at) ^ (Op::kLinear ? flip_ : uint64_t{0});
  }
  Words RawVector(size_t at) const noexcept {
    if constexpr (Op::kLinear) return order_(Combine<Op>(a_, b_, at));
    return order_(Combined(at));
  }
  uint64_t RawWord(size_t at) const noexcept {
    if constexpr (Op::kLinear) return order_(CombineWord<Op>(a_, b_, at));
    return order_(
        Op::template Apply<uint64_t>(LoadWord(a_ + at) ^ flip_a_, LoadWord(b_ + at) ^ flip_b_));
  }
  uint64_t Raw(uint64_t bit) const noexcept { return Op::kLinear ? bit ^ (flip_ & 1) : bit; }

 private:
  Words Combined(size_t at) const noexcept {
    return Op::template Apply<Words>(LoadWords(a_ + at) ^ Words(flip_a_),
                                     LoadWords(b_ + at) ^ Words(flip_b_));
  }

  const ByteOrder order_;
  const uint8_t* const a_;
  const uint8_t* const b_;
  const uint64_t flip_;  // of the result of a linear operation
  const uint64_t flip_a_;
  const uint64_t flip_b_;
};

// The bits of `now` that differ from the bit before them; the bit before the first one is the last
// one of `before`.
template <bool kDescending>
static inline uint64_t WordEdges(uint64_t before, uint64_t now) noexcept {
  return kDescending ? now ^ (now >> 1 | before << 63) : now ^ (now << 1 | before >> 63);
}

}  // namespace word_ops
}  // namespace cbt::simd::CBT_ISA_NAMESPACE

#endif  // CBT_SIMD_WORD_OPS_INL_H_

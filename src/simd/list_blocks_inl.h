// Body of list_blocks for every SIMD level. Included by isa_<level>.cc inside no namespace, once.
//
// A scan takes groups of 64 words. It notes which of them are not 0, so that empty words cost no
// branch, and lists the bits of the others.
#include <xsimd/xsimd.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "simd/list_blocks.h"
#include "simd/word_ops_inl.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace list_blocks {

using namespace word_ops;  // NOLINT(google-build-using-namespace): one body in two files

#if defined(__AVX512VBMI2__)

// Writes the offsets of the set bits, lowest first; may write seven more elements. Does not branch
// if there are at most eight.
static inline void ListBits(uint64_t bits, size_t count, uint64_t origin, unsigned shift,
                            uint64_t* out) noexcept {
  alignas(64) static constexpr uint8_t kPlaces[64] = {
      0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
      22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
      44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
  const __m128i by = _mm_cvtsi32_si128(static_cast<int>(shift));
  const __m512i base = _mm512_set1_epi64(static_cast<long long>(origin));
  __m512i places = _mm512_maskz_compress_epi8(bits, _mm512_load_si512(kPlaces));
  for (size_t i = 0;;) {
    const __m512i numbers = _mm512_cvtepu8_epi64(_mm512_castsi512_si128(places));
    _mm512_storeu_si512(out + i, _mm512_add_epi64(_mm512_sll_epi64(numbers, by), base));
    i += 8;
    if (__builtin_expect(i >= count, 1)) return;
    places = _mm512_alignr_epi64(places, places, 1);
  }
}

#else

// Words with more set bits than this are listed byte by byte.
constexpr size_t kFewBits = 16;

// Writes the offsets of the set bits, lowest first; may write three more elements. Does not branch
// if there are at most four.
static inline void ListFew(uint64_t bits, size_t count, uint64_t origin, unsigned shift,
                           uint64_t* out) noexcept {
  size_t i = 0;
  do {
    for (size_t k = 0; k < 4; ++k) {
      out[i + k] = origin + (LowestBit(bits) << shift);
      bits &= bits - 1;
    }
    i += 4;
  } while (i < count);
}

// As ListFew(), without a branch; may write seven more elements.
static inline void ListMany(uint64_t bits, [[maybe_unused]] size_t count, uint64_t origin,
                            unsigned shift, uint64_t* out) noexcept {
#if defined(__AVX2__)
  const __m128i by = _mm_cvtsi32_si128(static_cast<int>(shift));
  const auto spread = [&](uint64_t places, uint64_t base) {
    const __m256i numbers = _mm256_cvtepu8_epi64(_mm_cvtsi64_si128(static_cast<long long>(places)));
    return _mm256_add_epi64(_mm256_sll_epi64(numbers, by),
                            _mm256_set1_epi64x(static_cast<long long>(base)));
  };
  for (size_t byte = 0; byte < 8; ++byte) {
    const auto part = static_cast<unsigned>(bits >> (8 * byte) & 0xff);
    const uint64_t places = kByteTable.positions[part];
    const uint64_t base = origin + (uint64_t{8} * byte << shift);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), spread(places, base));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 4), spread(places >> 32, base));
    out += __builtin_popcount(part);
  }
#else
  ListFew(bits, count, origin, shift, out);
#endif
}

static inline void ListBits(uint64_t bits, size_t count, uint64_t origin, unsigned shift,
                            uint64_t* out) noexcept {
  if (count <= kFewBits) {
    ListFew(bits, count, origin, shift, out);
  } else {
    ListMany(bits, count, origin, shift, out);
  }
}

#endif

// All 64 offsets.
static inline void ListAll(uint64_t origin, unsigned shift, uint64_t* out) noexcept {
  for (size_t k = 0; k < 64; ++k) out[k] = origin + (uint64_t{k} << shift);
}

template <typename Op>
static BlockScan List(const uint8_t* a, const uint8_t* b, size_t words, uint64_t origin,
                      unsigned shift, uint64_t* offsets, size_t room) noexcept {
  constexpr size_t kLanes = Words::size;
  static_assert(64 % kLanes == 0);
  size_t found = 0;
  for (size_t group = 0; group < words; group += 64) {
    const size_t count = words - group < 64 ? words - group : 64;
    uint64_t used = 0;
    size_t i = 0;
    for (; count - i >= kLanes; i += kLanes) {
      used |= uint64_t{NonZeroLanes(Combine<Op>(a, b, (group + i) * 8))} << i;
    }
    for (; i < count; ++i) {
      used |= uint64_t{CombineWord<Op>(a, b, (group + i) * 8) != 0} << i;
    }
    for (; used != 0; used &= used - 1) {
      const size_t word = group + static_cast<size_t>(__builtin_ctzll(used));
      if (found >= room) return {word, found};
      const uint64_t bits = CombineWord<Op>(a, b, word * 8);
      const uint64_t base = origin + (uint64_t{word} * 64 << shift);
      uint64_t* const out = offsets + found;
      const auto ones = static_cast<size_t>(__builtin_popcountll(bits));
      if (__builtin_expect(ones == 64, 0)) {
        ListAll(base, shift, out);
      } else {
        ListBits(bits, ones, base, shift, out);
      }
      found += ones;
    }
    if (found >= room) return {group + count, found};
  }
  return {words, found};
}

// The bits that are the lowest of groups of 1 << index.
constexpr uint64_t kLowest[] = {~uint64_t{0},        0x5555555555555555u, 0x1111111111111111u,
                                0x0101010101010101u, 0x0001000100010001u, 0x0000000100000001u,
                                0x0000000000000001u};

// One bit for each group of 1 << kFold bits, in the lowest 64 >> kFold bits.
template <unsigned kFold>
static inline uint64_t FoldWord(uint64_t word) noexcept {
  for (unsigned step = 0; step < kFold; ++step) word |= word >> (1u << step);
#if defined(__BMI2__)
  return kFold == 0 ? word : _pext_u64(word, kLowest[kFold]);
#else
  // Each round moves bits that are two apart together, and what is between them out.
  for (unsigned round = 0; round < kFold; ++round) {
    word &= 0x5555555555555555u;
    word = (word | word >> 1) & 0x3333333333333333u;
    word = (word | word >> 2) & 0x0f0f0f0f0f0f0f0fu;
    word = (word | word >> 4) & 0x00ff00ff00ff00ffu;
    word = (word | word >> 8) & 0x0000ffff0000ffffu;
    word = (word | word >> 16) & 0x00000000ffffffffu;
  }
  return word;
#endif
}

// Bit i: byte i of the eight words from `at` (bytes) on is not 0.
template <typename Op>
static inline uint64_t UsedBytes(const uint8_t* a, const uint8_t* b, size_t at) noexcept {
#if defined(__AVX512BW__)
  const __m512i words = Combine<Op>(a, b, at);
  return _mm512_test_epi8_mask(words, words);
#elif defined(__SSE4_2__)
  uint64_t empty = 0;
  for (size_t byte = 0; byte < 64; byte += Words::size * 8) {
#if defined(__AVX2__)
    const __m256i zero = _mm256_cmpeq_epi8(Combine<Op>(a, b, at + byte), _mm256_setzero_si256());
    empty |= uint64_t{static_cast<uint32_t>(_mm256_movemask_epi8(zero))} << byte;
#else
    const __m128i zero = _mm_cmpeq_epi8(Combine<Op>(a, b, at + byte), _mm_setzero_si128());
    empty |= uint64_t{static_cast<uint32_t>(_mm_movemask_epi8(zero))} << byte;
#endif
  }
  return ~empty;
#else
  uint64_t used = 0;
  for (size_t k = 0; k < 8; ++k) {
    used |= FoldWord<3>(CombineWord<Op>(a, b, at + k * 8)) << (k * 8);
  }
  return used;
#endif
}

template <typename Op, unsigned kFold>
static void FoldBy(const uint8_t* a, const uint8_t* b, size_t words, uint64_t* out) noexcept {
  for (size_t i = 0; i < words; ++i) {
    const size_t at = i * 8 << kFold;
    uint64_t folded = 0;
    if constexpr (kFold < 3) {
      for (size_t k = 0; k < size_t{1} << kFold; ++k) {
        folded |= FoldWord<kFold>(CombineWord<Op>(a, b, at + k * 8)) << (k << (6 - kFold));
      }
    } else {
      // Whole bytes first, eight words at a time.
      constexpr unsigned kRest = kFold - 3;
      for (size_t k = 0; k < size_t{1} << kRest; ++k) {
        folded |= FoldWord<kRest>(UsedBytes<Op>(a, b, at + k * 64)) << (k << (6 - kRest));
      }
    }
    out[i] = folded;
  }
}

template <typename Op>
static void Fold(const uint8_t* a, const uint8_t* b, size_t words, unsigned fold,
                 uint64_t* out) noexcept {
  switch (fold) {
    case 1:
      return FoldBy<Op, 1>(a, b, words, out);
    case 2:
      return FoldBy<Op, 2>(a, b, words, out);
    case 3:
      return FoldBy<Op, 3>(a, b, words, out);
    case 4:
      return FoldBy<Op, 4>(a, b, words, out);
    case 5:
      return FoldBy<Op, 5>(a, b, words, out);
    default:
      return FoldBy<Op, 6>(a, b, words, out);
  }
}

template <typename Op>
constexpr BlockKernel kKernel = {&List<Op>, &Fold<Op>};

}  // namespace list_blocks

extern const ListBlocksKernels kListBlocks;
const ListBlocksKernels kListBlocks = {
    &list_blocks::kKernel<list_blocks::Single>, &list_blocks::kKernel<list_blocks::Exclusive>,
    &list_blocks::kKernel<list_blocks::AndNot>, &list_blocks::kKernel<list_blocks::Either>,
    &list_blocks::kKernel<list_blocks::Both>,
};

}  // namespace cbt::simd::CBT_ISA_NAMESPACE

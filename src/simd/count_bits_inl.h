// Body of count_bits for every SIMD level. Included by isa_<level>.cc inside no namespace, once.
#include <xsimd/xsimd.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "simd/count_bits.h"
#include "simd/word_ops_inl.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace count_bits {

using namespace word_ops;  // NOLINT(google-build-using-namespace): one body in two files

// The number of set bits in each lane.
static inline Words Ones(Words words) noexcept {
#if defined(__AVX512VPOPCNTDQ__)
  return _mm512_popcnt_epi64(words);
#elif defined(__AVX2__)
  // Looks up both nibbles of every byte, then sums the bytes of each lane. (W. Mula)
  const __m256i table =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
  const __m256i nibble = _mm256_set1_epi8(0x0f);
  const __m256i low = _mm256_shuffle_epi8(table, _mm256_and_si256(words, nibble));
  const __m256i high =
      _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi64(words, 4), nibble));
  return _mm256_sad_epu8(_mm256_add_epi8(low, high), _mm256_setzero_si256());
#elif defined(__SSE4_2__)
  return _mm_set_epi64x(_mm_popcnt_u64(static_cast<uint64_t>(_mm_extract_epi64(words, 1))),
                        _mm_popcnt_u64(static_cast<uint64_t>(_mm_cvtsi128_si64(words))));
#elif defined(__aarch64__)
  return vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(vcntq_u8(vreinterpretq_u8_u64(words)))));
#endif
}

static inline uint64_t Sum(Words words) noexcept {
  uint64_t lanes[Words::size];
  words.store_unaligned(lanes);
  uint64_t sum = 0;
  for (const uint64_t lane : lanes) sum += lane;
  return sum;
}

template <typename Op>
static BitCounts Count(const uint8_t* a, const uint8_t* b, size_t words, uint64_t open) noexcept {
  Words ones(uint64_t{0});
  Words starts(uint64_t{0});
  Words before(open << 63);
  size_t i = 0;
  for (; words - i >= Words::size; i += Words::size) {
    const Words now = Combine<Op>(a, b, i * 8);
    ones = ones + Ones(now);
    starts = starts + Ones(now & ~(now << 1 | Previous(before, now) >> 63));
    before = now;
  }
  BitCounts counts{Sum(ones), Sum(starts), open};
  if (i != 0) counts.open = CombineWord<Op>(a, b, (i - 1) * 8) >> 63;
  for (; i < words; ++i) {
    const uint64_t word = CombineWord<Op>(a, b, i * 8);
    counts.ones += static_cast<uint64_t>(__builtin_popcountll(word));
    counts.starts += static_cast<uint64_t>(__builtin_popcountll(word & ~(word << 1 | counts.open)));
    counts.open = word >> 63;
  }
  return counts;
}

}  // namespace count_bits

extern const CountBitsKernels kCountBits;
const CountBitsKernels kCountBits = {
    &count_bits::Count<count_bits::Single>, &count_bits::Count<count_bits::Exclusive>,
    &count_bits::Count<count_bits::AndNot>, &count_bits::Count<count_bits::Either>,
    &count_bits::Count<count_bits::Both>,
};

}  // namespace cbt::simd::CBT_ISA_NAMESPACE

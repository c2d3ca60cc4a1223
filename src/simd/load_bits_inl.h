// Body of load_bits for every SIMD level. Included by isa_<level>.cc inside no namespace, once.
#include <xsimd/xsimd.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "simd/load_bits.h"
#include "simd/word_ops_inl.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace load_bits {

using namespace word_ops;  // NOLINT(google-build-using-namespace): one body in two files

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

template <bool kReverse>
static inline void Loop(const uint8_t* from, unsigned shift, uint64_t flip, uint64_t* out,
                        size_t words) noexcept {
  const Words flips(flip);
  const auto down = static_cast<int>(shift);
  const auto up = static_cast<int>(8 - shift);
  size_t i = 0;
  for (; words - i >= Words::size; i += Words::size) {
    Words low = LoadWords(from + i * 8);
    if (kReverse) low = ReverseBytes(low);
    if (shift != 0) {
      // Load one byte further on, so that the bits of the ninth byte enter at the top; the others
      // end up where they already are.
      Words high = LoadWords(from + i * 8 + 1);
      if (kReverse) high = ReverseBytes(high);
      low = low >> down | high << up;
    }
    (low ^ flips).store_unaligned(out + i);
  }
  if (i == words) return;
  // The last words as a separate vector, padded with zeros.
  uint8_t rest[Words::size * 8 + 1] = {};
  __builtin_memcpy(rest, from + i * 8, (words - i) * 8 + (shift != 0 ? 1 : 0));
  uint64_t result[Words::size];
  Words low = LoadWords(rest);
  if (kReverse) low = ReverseBytes(low);
  if (shift != 0) {
    Words high = LoadWords(rest + 1);
    if (kReverse) high = ReverseBytes(high);
    low = low >> down | high << up;
  }
  (low ^ flips).store_unaligned(result);
  __builtin_memcpy(out + i, result, (words - i) * 8);
}

static void Load(const uint8_t* from, unsigned shift, bool reverse, bool invert, uint64_t* out,
                 size_t words) noexcept {
  const uint64_t flip = invert ? ~uint64_t{0} : 0;
  if (reverse) {
    Loop<true>(from, shift, flip, out, words);
  } else {
    Loop<false>(from, shift, flip, out, words);
  }
}

}  // namespace load_bits

extern const LoadBitsKernels kLoadBits;
const LoadBitsKernels kLoadBits = {&load_bits::Load};

}  // namespace cbt::simd::CBT_ISA_NAMESPACE

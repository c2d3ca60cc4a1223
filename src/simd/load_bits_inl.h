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

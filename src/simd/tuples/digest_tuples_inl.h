// Body of digest_tuples for every SIMD level. Included by isa_<level>.cc inside no namespace, once.
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "simd/tuples/digest_tuples.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace digest_tuples {

// Four lanes, in as many vectors as they take. Four at most: a wider vector would need both kinds
// of lanes in one, and shuffles.
#if defined(__AVX2__)

using Lanes = __m256i;
constexpr size_t kParts = 1;

static inline Lanes Load(const uint64_t* from) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
static inline void Store(uint64_t* to, Lanes lanes) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), lanes);
}
static inline Lanes Add(Lanes a, Lanes b) noexcept { return _mm256_add_epi64(a, b); }
static inline Lanes Xor(Lanes a, Lanes b) noexcept { return _mm256_xor_si256(a, b); }
template <int kBits>
static inline Lanes Down(Lanes a) noexcept {
  return _mm256_srli_epi64(a, kBits);
}
static inline Lanes Up32(Lanes a) noexcept { return _mm256_slli_epi64(a, 32); }
// The product of the low halves.
static inline Lanes Multiply(Lanes a, Lanes b) noexcept { return _mm256_mul_epu32(a, b); }
static inline Lanes Same(uint32_t value) noexcept {
  return _mm256_set1_epi64x(static_cast<long long>(value));
}

#elif defined(__SSE4_2__)

using Lanes = __m128i;
constexpr size_t kParts = 2;

static inline Lanes Load(const uint64_t* from) noexcept {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
static inline void Store(uint64_t* to, Lanes lanes) noexcept {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), lanes);
}
static inline Lanes Add(Lanes a, Lanes b) noexcept { return _mm_add_epi64(a, b); }
static inline Lanes Xor(Lanes a, Lanes b) noexcept { return _mm_xor_si128(a, b); }
template <int kBits>
static inline Lanes Down(Lanes a) noexcept {
  return _mm_srli_epi64(a, kBits);
}
static inline Lanes Up32(Lanes a) noexcept { return _mm_slli_epi64(a, 32); }
static inline Lanes Multiply(Lanes a, Lanes b) noexcept { return _mm_mul_epu32(a, b); }
static inline Lanes Same(uint32_t value) noexcept {
  return _mm_set1_epi64x(static_cast<long long>(value));
}

#elif defined(__aarch64__)

using Lanes = uint64x2_t;
constexpr size_t kParts = 2;

static inline Lanes Load(const uint64_t* from) noexcept { return vld1q_u64(from); }
static inline void Store(uint64_t* to, Lanes lanes) noexcept { vst1q_u64(to, lanes); }
static inline Lanes Add(Lanes a, Lanes b) noexcept { return vaddq_u64(a, b); }
static inline Lanes Xor(Lanes a, Lanes b) noexcept { return veorq_u64(a, b); }
template <int kBits>
static inline Lanes Down(Lanes a) noexcept {
  return vshrq_n_u64(a, kBits);
}
static inline Lanes Up32(Lanes a) noexcept { return vshlq_n_u64(a, 32); }
static inline Lanes Multiply(Lanes a, Lanes b) noexcept {
  return vmull_u32(vmovn_u64(a), vmovn_u64(b));
}
static inline Lanes Same(uint32_t value) noexcept { return vdupq_n_u64(value); }

#endif

constexpr size_t kWidth = kStripeTuples / kParts;

// One stripe: each lane takes the product of the halves of its own value, mixed with the secret,
// and its neighbour's value.
static inline void AddStripe(const uint64_t* offsets, const uint64_t* lengths,
                             const uint64_t* even_key, const uint64_t* odd_key, Lanes* even,
                             Lanes* odd) noexcept {
  for (size_t part = 0; part < kParts; ++part) {
    const Lanes offset = Load(offsets + part * kWidth);
    const Lanes length = Load(lengths + part * kWidth);
    const Lanes mixed = Xor(offset, Load(even_key + part * kWidth));
    const Lanes other = Xor(length, Load(odd_key + part * kWidth));
    even[part] = Add(even[part], Add(Multiply(mixed, Down<32>(mixed)), length));
    odd[part] = Add(odd[part], Add(Multiply(other, Down<32>(other)), offset));
  }
}

static inline Lanes Scramble(Lanes lanes, const uint64_t* key) noexcept {
  const Lanes prime = Same(0x9E3779B1u);
  const Lanes mixed = Xor(Xor(lanes, Down<47>(lanes)), Load(key));
  return Add(Multiply(mixed, prime), Up32(Multiply(Down<32>(mixed), prime)));
}

static void AddStripes(const uint64_t* offsets, const uint64_t* lengths, size_t stripes,
                       DigestLanes& lanes) noexcept {
  const DigestSecret& secret = kDigestSecret;
  Lanes even[kParts];
  Lanes odd[kParts];
  for (size_t part = 0; part < kParts; ++part) {
    even[part] = Load(lanes.even + part * kWidth);
    odd[part] = Load(lanes.odd + part * kWidth);
  }
  size_t stripe = lanes.stripe;
  for (size_t i = 0; i < stripes; ++i) {
    // The keys of a stripe are the words of the secret from its number on.
    const size_t half = stripe / 2;
    const bool swapped = stripe % 2 != 0;
    AddStripe(offsets + i * kStripeTuples, lengths + i * kStripeTuples,
              (swapped ? secret.odd : secret.even) + half,
              swapped ? secret.even + half + 1 : secret.odd + half, even, odd);
    if (++stripe < kBlockStripes) continue;
    stripe = 0;
    for (size_t part = 0; part < kParts; ++part) {
      even[part] = Scramble(even[part], secret.even + 8 + part * kWidth);
      odd[part] = Scramble(odd[part], secret.odd + 8 + part * kWidth);
    }
  }
  for (size_t part = 0; part < kParts; ++part) {
    Store(lanes.even + part * kWidth, even[part]);
    Store(lanes.odd + part * kWidth, odd[part]);
  }
  lanes.stripe = stripe;
}

}  // namespace digest_tuples

extern const DigestTuplesKernels kDigestTuples;
const DigestTuplesKernels kDigestTuples = {&digest_tuples::AddStripes};

}  // namespace cbt::simd::CBT_ISA_NAMESPACE

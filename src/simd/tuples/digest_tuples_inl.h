// Body of digest_tuples for every SIMD level. Included by isa_<level>.cc inside no namespace, once;
// the level's table is defined here unless a wider body follows.
//
// Blocks whose lengths are all the same, as in streams of fixed length, take half of the work: what
// the lengths add to the odd lanes does not depend on the block.
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
static inline Lanes Or(Lanes a, Lanes b) noexcept { return _mm256_or_si256(a, b); }
template <int kBits>
static inline Lanes Down(Lanes a) noexcept {
  return _mm256_srli_epi64(a, kBits);
}
static inline Lanes Up32(Lanes a) noexcept { return _mm256_slli_epi64(a, 32); }
// The product of the low halves.
static inline Lanes Multiply(Lanes a, Lanes b) noexcept { return _mm256_mul_epu32(a, b); }
static inline Lanes Same(uint64_t value) noexcept {
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
static inline Lanes Or(Lanes a, Lanes b) noexcept { return _mm_or_si128(a, b); }
template <int kBits>
static inline Lanes Down(Lanes a) noexcept {
  return _mm_srli_epi64(a, kBits);
}
static inline Lanes Up32(Lanes a) noexcept { return _mm_slli_epi64(a, 32); }
static inline Lanes Multiply(Lanes a, Lanes b) noexcept { return _mm_mul_epu32(a, b); }
static inline Lanes Same(uint64_t value) noexcept {
  return _mm_set1_epi64x(static_cast<long long>(value));
}

#elif defined(__aarch64__)

using Lanes = uint64x2_t;
constexpr size_t kParts = 2;

static inline Lanes Load(const uint64_t* from) noexcept { return vld1q_u64(from); }
static inline void Store(uint64_t* to, Lanes lanes) noexcept { vst1q_u64(to, lanes); }
static inline Lanes Add(Lanes a, Lanes b) noexcept { return vaddq_u64(a, b); }
static inline Lanes Xor(Lanes a, Lanes b) noexcept { return veorq_u64(a, b); }
static inline Lanes Or(Lanes a, Lanes b) noexcept { return vorrq_u64(a, b); }
template <int kBits>
static inline Lanes Down(Lanes a) noexcept {
  return vshrq_n_u64(a, kBits);
}
static inline Lanes Up32(Lanes a) noexcept { return vshlq_n_u64(a, 32); }
static inline Lanes Multiply(Lanes a, Lanes b) noexcept {
  return vmull_u32(vmovn_u64(a), vmovn_u64(b));
}
static inline Lanes Same(uint64_t value) noexcept { return vdupq_n_u64(value); }

#endif

constexpr size_t kWidth = kStripeTuples / kParts;

// What a call works on.
struct Accumulators {
  Lanes even[kParts];
  Lanes odd[kParts];
  Lanes bytes[kParts];
};

// The keys of a stripe are the words of the secret from its number in the block on.
static inline const uint64_t* EvenKey(size_t stripe) noexcept {
  return (stripe % 2 != 0 ? kDigestSecret.odd : kDigestSecret.even) + stripe / 2;
}
static inline const uint64_t* OddKey(size_t stripe) noexcept {
  return stripe % 2 != 0 ? kDigestSecret.even + stripe / 2 + 1 : kDigestSecret.odd + stripe / 2;
}

// One stripe: each lane takes the product of the halves of its own value, mixed with the secret,
// and its neighbour's value.
static inline void AddStripe(const uint64_t* offsets, const uint64_t* lengths, size_t stripe,
                             Accumulators& to) noexcept {
  const uint64_t* const even_key = EvenKey(stripe);
  const uint64_t* const odd_key = OddKey(stripe);
  for (size_t part = 0; part < kParts; ++part) {
    const Lanes offset = Load(offsets + part * kWidth);
    const Lanes length = Load(lengths + part * kWidth);
    const Lanes mixed = Xor(offset, Load(even_key + part * kWidth));
    const Lanes other = Xor(length, Load(odd_key + part * kWidth));
    to.even[part] = Add(to.even[part], Add(Multiply(mixed, Down<32>(mixed)), length));
    to.odd[part] = Add(to.odd[part], Add(Multiply(other, Down<32>(other)), offset));
    to.bytes[part] = Add(to.bytes[part], length);
  }
}

static inline Lanes Scramble(Lanes lanes, const uint64_t* key) noexcept {
  const Lanes prime = Same(0x9E3779B1u);
  const Lanes mixed = Xor(Xor(lanes, Down<47>(lanes)), Load(key));
  return Add(Multiply(mixed, prime), Up32(Multiply(Down<32>(mixed), prime)));
}

static inline void EndBlock(Accumulators& block) noexcept {
  for (size_t part = 0; part < kParts; ++part) {
    block.even[part] = Scramble(block.even[part], kDigestSecret.even + 8 + part * kWidth);
    block.odd[part] = Scramble(block.odd[part], kDigestSecret.odd + 8 + part * kWidth);
  }
}

// A length that all tuples of a block have, and what its stripes add to the odd lanes.
struct SameLength {
  explicit SameLength(uint64_t of_first) noexcept : length(of_first) {
    for (Lanes& lanes : odd) lanes = Same(0);
  }

  const uint64_t length;
  bool known = false;  // odd is that of `length`
  Lanes odd[kParts];

  // True if every tuple of the block at `lengths` has `length`.
  bool IsOf(const uint64_t* lengths) const noexcept {
    const Lanes same = Same(length);
    Lanes different = Same(0);
    for (size_t i = 0; i < kBlockStripes * kStripeTuples; i += kWidth) {
      different = Or(different, Xor(Load(lengths + i), same));
    }
    uint64_t lanes[kWidth];
    Store(lanes, different);
    uint64_t any = 0;
    for (const uint64_t lane : lanes) any |= lane;
    return any == 0;
  }

  void Learn() noexcept {
    const Lanes same = Same(length);
    for (size_t part = 0; part < kParts; ++part) {
      for (size_t k = 0; k < kBlockStripes; ++k) {
        const Lanes mixed = Xor(same, Load(OddKey(k) + part * kWidth));
        odd[part] = Add(odd[part], Multiply(mixed, Down<32>(mixed)));
      }
    }
    known = true;
  }
};

// Adds a block whose tuples have the length of `same`.
static inline void AddSameBlock(const uint64_t* offsets, SameLength& same,
                                Accumulators& to) noexcept {
  if (!same.known) same.Learn();
  const Lanes bytes = Same(same.length * kBlockStripes);
  for (size_t part = 0; part < kParts; ++part) {
    Lanes sum = Same(0);
    Lanes even = Same(0);
#pragma GCC unroll 16
    for (size_t k = 0; k < kBlockStripes; ++k) {
      const Lanes offset = Load(offsets + k * kStripeTuples + part * kWidth);
      const Lanes mixed = Xor(offset, Load(EvenKey(k) + part * kWidth));
      even = Add(even, Multiply(mixed, Down<32>(mixed)));
      sum = Add(sum, offset);
    }
    to.even[part] = Add(to.even[part], Add(even, bytes));
    to.odd[part] = Add(to.odd[part], Add(same.odd[part], sum));
    to.bytes[part] = Add(to.bytes[part], bytes);
  }
}

static uint64_t AddStripes(const uint64_t* offsets, const uint64_t* lengths, size_t stripes,
                           DigestLanes& lanes) noexcept {
  if (stripes == 0) return 0;
  Accumulators sums;
  for (size_t part = 0; part < kParts; ++part) {
    sums.even[part] = Load(lanes.even + part * kWidth);
    sums.odd[part] = Load(lanes.odd + part * kWidth);
    sums.bytes[part] = Same(0);
  }
  SameLength same(lengths[0]);
  // Looks for blocks of one length until there is one that is not.
  bool looks = true;
  size_t stripe = lanes.stripe;
  size_t i = 0;
  const auto add = [&](size_t number) {
    AddStripe(offsets + i * kStripeTuples, lengths + i * kStripeTuples, number, sums);
    ++i;
  };
  while (i < stripes) {
    // The keys of a whole block are at known places.
    if (stripe == 0 && stripes - i >= kBlockStripes) {
      looks = looks && same.IsOf(lengths + i * kStripeTuples);
      if (looks) {
        AddSameBlock(offsets + i * kStripeTuples, same, sums);
        i += kBlockStripes;
      } else {
#pragma GCC unroll 16
        for (size_t k = 0; k < kBlockStripes; ++k) add(k);
      }
      EndBlock(sums);
      continue;
    }
    add(stripe);
    if (++stripe < kBlockStripes) continue;
    stripe = 0;
    EndBlock(sums);
  }
  uint64_t bytes[kStripeTuples];
  for (size_t part = 0; part < kParts; ++part) {
    Store(lanes.even + part * kWidth, sums.even[part]);
    Store(lanes.odd + part * kWidth, sums.odd[part]);
    Store(bytes + part * kWidth, sums.bytes[part]);
  }
  lanes.stripe = stripe;
  return bytes[0] + bytes[1] + bytes[2] + bytes[3];
}

}  // namespace digest_tuples

#if !defined(__AVX512VBMI2__)
extern const DigestTuplesKernels kDigestTuples;
const DigestTuplesKernels kDigestTuples = {&digest_tuples::AddStripes};
#endif

}  // namespace cbt::simd::CBT_ISA_NAMESPACE

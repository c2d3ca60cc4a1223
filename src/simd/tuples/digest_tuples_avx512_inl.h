// Body of digest_tuples for level avx512: whole blocks two stripes at a time. Included by
// isa_avx512.cc inside no namespace; the body of four lanes adds the stripes before and after.
//
// Within a block the lanes only add, so the stripes with even numbers are summed in the lower half
// of a vector and the others in the upper half. Four of the additions of a stripe are the sums of
// its offsets and lengths, which go to one lane each: they are added once a block.
#include <immintrin.h>

#include "simd/tuples/digest_tuples.h"
#include "simd/tuples/digest_tuples_inl.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace digest_tuples {

constexpr size_t kPairs = kBlockStripes / 2;
constexpr size_t kBlockTuples = kBlockStripes * kStripeTuples;

static inline __m512i LoadEight(const uint64_t* from) noexcept { return _mm512_loadu_si512(from); }

// The keys of two stripes.
static inline __m512i KeysAt(const uint64_t* lower, const uint64_t* upper) noexcept {
  return _mm512_inserti64x4(_mm512_castsi256_si512(Load(lower)), Load(upper), 1);
}
static inline __m512i EvenKeys(size_t pair) noexcept {
  return KeysAt(EvenKey(2 * pair), EvenKey(2 * pair + 1));
}
static inline __m512i OddKeys(size_t pair) noexcept {
  return KeysAt(OddKey(2 * pair), OddKey(2 * pair + 1));
}

static inline __m512i FoldEight(__m512i mixed) noexcept {
  return _mm512_mul_epu32(mixed, _mm512_srli_epi64(mixed, 32));
}

// The sum of both halves.
static inline Lanes Join(__m512i lanes) noexcept {
  return _mm256_add_epi64(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64(lanes, 1));
}

static uint64_t AddWide(const uint64_t* offsets, const uint64_t* lengths, size_t stripes,
                        DigestLanes& lanes) noexcept {
  size_t lead = lanes.stripe == 0 ? 0 : kBlockStripes - lanes.stripe;
  lead = lead < stripes ? lead : stripes;
  uint64_t bytes = AddStripes(offsets, lengths, lead, lanes);
  size_t blocks = (stripes - lead) / kBlockStripes;
  const size_t rest = (stripes - lead) % kBlockStripes;
  offsets += lead * kStripeTuples;
  lengths += lead * kStripeTuples;
  if (blocks != 0) {
    __m512i even_keys[kPairs];
    __m512i odd_keys[kPairs];
    for (size_t k = 0; k < kPairs; ++k) {
      even_keys[k] = EvenKeys(k);
      odd_keys[k] = OddKeys(k);
    }
    Accumulators sums;
    sums.even[0] = Load(lanes.even);
    sums.odd[0] = Load(lanes.odd);
    __m512i total = _mm512_setzero_si512();
    // What blocks add that have the length of the first tuple.
    const __m512i same = _mm512_set1_epi64(static_cast<long long>(lengths[0]));
    const __m512i same_sum = _mm512_slli_epi64(same, 3);
    static_assert(kPairs == 8);
    __m512i same_odd = _mm512_setzero_si512();
    bool known = false;
    bool looks = true;
    for (; blocks != 0; --blocks) {
      if (looks) {
        __m512i different = _mm512_setzero_si512();
        constexpr int kOrXor = 0xf6;  // a | (b ^ c)
        for (size_t k = 0; k < kPairs; ++k) {
          different =
              _mm512_ternarylogic_epi64(different, LoadEight(lengths + 8 * k), same, kOrXor);
        }
        looks = _mm512_test_epi64_mask(different, different) == 0;
      }
      __m512i even = _mm512_setzero_si512();
      __m512i odd = _mm512_setzero_si512();
      __m512i offset_sum = _mm512_setzero_si512();
      __m512i length_sum = _mm512_setzero_si512();
      if (looks) {
        if (!known) {
          for (size_t k = 0; k < kPairs; ++k) {
            same_odd = _mm512_add_epi64(same_odd, FoldEight(_mm512_xor_si512(same, odd_keys[k])));
          }
          known = true;
        }
#pragma GCC unroll 8
        for (size_t k = 0; k < kPairs; ++k) {
          const __m512i offset = LoadEight(offsets + 8 * k);
          even = _mm512_add_epi64(even, FoldEight(_mm512_xor_si512(offset, even_keys[k])));
          offset_sum = _mm512_add_epi64(offset_sum, offset);
        }
        odd = same_odd;
        length_sum = same_sum;
      } else {
#pragma GCC unroll 8
        for (size_t k = 0; k < kPairs; ++k) {
          const __m512i offset = LoadEight(offsets + 8 * k);
          const __m512i length = LoadEight(lengths + 8 * k);
          even = _mm512_add_epi64(even, FoldEight(_mm512_xor_si512(offset, even_keys[k])));
          odd = _mm512_add_epi64(odd, FoldEight(_mm512_xor_si512(length, odd_keys[k])));
          offset_sum = _mm512_add_epi64(offset_sum, offset);
          length_sum = _mm512_add_epi64(length_sum, length);
        }
      }
      sums.even[0] = Add(sums.even[0], Join(_mm512_add_epi64(even, length_sum)));
      sums.odd[0] = Add(sums.odd[0], Join(_mm512_add_epi64(odd, offset_sum)));
      total = _mm512_add_epi64(total, length_sum);
      EndBlock(sums);
      offsets += kBlockTuples;
      lengths += kBlockTuples;
    }
    Store(lanes.even, sums.even[0]);
    Store(lanes.odd, sums.odd[0]);
    // GCC's _mm512_reduce_add_epi64() adds signed numbers, which must not wrap.
    uint64_t totals[8];
    _mm512_storeu_si512(totals, total);
    for (const uint64_t one : totals) bytes += one;
  }
  return bytes + AddStripes(offsets, lengths, rest, lanes);
}

}  // namespace digest_tuples

extern const DigestTuplesKernels kDigestTuples;
const DigestTuplesKernels kDigestTuples = {&digest_tuples::AddWide};

}  // namespace cbt::simd::CBT_ISA_NAMESPACE

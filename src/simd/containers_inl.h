// Body of containers for levels without compress instructions: mostly branch-free loops that the
// compiler vectorises. Included by isa_<level>.cc inside no namespace, once. The body for AVX-512
// reuses functions for which it has no better instructions.
#ifndef CBT_SIMD_CONTAINERS_INL_H_
#define CBT_SIMD_CONTAINERS_INL_H_

#include "simd/containers.h"
#include "simd/word_ops_inl.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace containers {

// The number at `index`, at any alignment.
template <typename T>
static inline T NumberAt(const uint8_t* bytes, size_t index) noexcept {
  T number;
  __builtin_memcpy(&number, bytes + index * sizeof(T), sizeof(T));
  return number;
}
static inline uint16_t ValueAt(const uint8_t* bytes, size_t index) noexcept {
  return NumberAt<uint16_t>(bytes, index);
}
static inline uint32_t PairAt(const uint8_t* bytes, size_t index) noexcept {
  return NumberAt<uint32_t>(bytes, index);
}
static inline uint64_t WordAt(const uint8_t* bytes, size_t index) noexcept {
  return NumberAt<uint64_t>(bytes, index);
}

static bool CheckValues(const uint8_t* bytes, size_t count) noexcept {
  unsigned wrong = 0;
  for (size_t i = 1; i < count; ++i) wrong |= ValueAt(bytes, i) <= ValueAt(bytes, i - 1) ? 1 : 0;
  return wrong == 0;
}

static uint32_t CheckPairs(const uint8_t* bytes, size_t count) noexcept {
  uint32_t wrong = 0;
  uint32_t values = 0;
  for (size_t i = 0; i < count; ++i) {
    wrong |= (PairAt(bytes, i) & 0xffff) + (PairAt(bytes, i) >> 16) > 0xffff ? 1 : 0;
    values += (PairAt(bytes, i) >> 16) + 1;
  }
  for (size_t i = 1; i < count; ++i) {
    const uint32_t end = (PairAt(bytes, i - 1) & 0xffff) + (PairAt(bytes, i - 1) >> 16);
    wrong |= (PairAt(bytes, i) & 0xffff) <= end + 1 ? 1 : 0;
  }
  return wrong == 0 ? values : 0;
}

// Byte k is not 0 if value i + k follows its predecessor, for eight values from `i` >= 1 on.
static inline uint64_t Followers(const uint8_t* bytes, size_t i) noexcept {
#if defined(__x86_64__)
  const __m128i now = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 2 * i));
  const __m128i before = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 2 * i - 2));
  const __m128i follow = _mm_cmpeq_epi16(_mm_sub_epi16(now, before), _mm_set1_epi16(1));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_packs_epi16(follow, follow)));
#elif defined(__aarch64__)
  const uint16x8_t now = vreinterpretq_u16_u8(vld1q_u8(bytes + 2 * i));
  const uint16x8_t before = vreinterpretq_u16_u8(vld1q_u8(bytes + 2 * i - 2));
  const uint16x8_t follow = vceqq_u16(vsubq_u16(now, before), vdupq_n_u16(1));
  return vget_lane_u64(vreinterpret_u64_u8(vmovn_u16(follow)), 0);
#endif
}

// The number of maximal runs in `count` ascending values.
static inline size_t CountValueRuns(const uint16_t* values, size_t count) noexcept {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(values);
  size_t runs = count;
  size_t i = 1;
  for (; i + 8 <= count; i += 8) {
    runs -= static_cast<size_t>(__builtin_popcountll(Followers(bytes, i))) / 8;
  }
  for (; i < count; ++i) runs -= values[i] == values[i - 1] + 1 ? 1 : 0;
  return runs;
}

// Looks at 32 words at once, and then only at those that have bits.
static FewValues CollectFew(const uint8_t* words, uint16_t* values) noexcept {
  using word_ops::Words;
  constexpr size_t kLanes = Words::size;
  constexpr size_t kGroup = 32;
  size_t count = 0;
  for (size_t i = 0; i < 1024; i += kGroup) {
    if (count > kMaxArrayValues - kGroup * kFewBits) return {kNotFew, 0};
    Words any(uint64_t{0});
    for (size_t k = 0; k < kGroup; k += kLanes) any |= word_ops::LoadWords(words + 8 * (i + k));
    if (word_ops::NonZeroLanes(any) == 0) continue;
    uint32_t some = 0;
    for (size_t k = 0; k < kGroup; k += kLanes) {
      some |= word_ops::NonZeroLanes(word_ops::LoadWords(words + 8 * (i + k))) << k;
    }
    for (; some != 0; some &= some - 1) {
      const size_t index = i + static_cast<size_t>(__builtin_ctz(some));
      uint64_t word = WordAt(words, index);
      const auto ones = static_cast<size_t>(__builtin_popcountll(word));
      if (ones > kFewBits) return {kNotFew, 0};
      // Four at a time, because how many a word has can't be predicted: what is stored too often,
      // the next ones overwrite.
      uint16_t* const out = values + count;
      size_t k = 0;
      do {
        for (const size_t end = k + 4; k < end; ++k) {
          out[k] = static_cast<uint16_t>(index * 64 + word_ops::TakeBit<false>(word));
        }
      } while (k < ones);
      count += ones;
    }
  }
  return {count, CountValueRuns(values, count)};
}

#ifndef CBT_CONTAINERS_COMPRESS

// Writes eight values as extents of one block.
static inline void WidenValues(const uint8_t* bytes, uint64_t origin, unsigned shift,
                               uint64_t* offsets, uint64_t* lengths) noexcept {
#if defined(__AVX2__)
  const __m128i by = _mm_cvtsi32_si128(static_cast<int>(shift));
  const __m256i first = _mm256_set1_epi64x(static_cast<long long>(origin));
  const __m256i unit = _mm256_set1_epi64x(static_cast<long long>(uint64_t{1} << shift));
  for (size_t k = 0; k < 8; k += 4) {
    const __m256i values =
        _mm256_cvtepu16_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes + 2 * k)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(offsets + k),
                        _mm256_add_epi64(_mm256_sll_epi64(values, by), first));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lengths + k), unit);
  }
#else
  uint16_t values[8];
  __builtin_memcpy(values, bytes, sizeof(values));
  for (size_t k = 0; k < 8; ++k) offsets[k] = origin + (uint64_t{values[k]} << shift);
  for (size_t k = 0; k < 8; ++k) lengths[k] = uint64_t{1} << shift;
#endif
}

// Eight values at a time: mostly none follows its predecessor, and each is an extent.
static size_t ExpandValues(const uint8_t* bytes, size_t count, uint64_t origin, unsigned shift,
                           uint64_t* offsets, uint64_t* lengths) noexcept {
  const uint64_t unit = uint64_t{1} << shift;
  size_t runs = 0;
  // Begins a run or, without a branch, continues the last one.
  const auto add = [&](size_t i, bool follows) {
    const uint64_t offset = origin + (uint64_t{ValueAt(bytes, i)} << shift);
    runs += follows ? 0 : 1;
    const uint64_t begin = follows ? offsets[runs - 1] : offset;
    offsets[runs - 1] = begin;
    lengths[runs - 1] = offset + unit - begin;
  };
  add(0, false);
  size_t i = 1;
  for (; count - i >= 8; i += 8) {
    uint64_t followers = Followers(bytes, i);
    if (followers == 0) {
      WidenValues(bytes + 2 * i, origin, shift, offsets + runs, lengths + runs);
      runs += 8;
      continue;
    }
    for (size_t k = 0; k < 8; ++k, followers >>= 8) add(i + k, (followers & 1) != 0);
  }
  for (; i < count; ++i) add(i, ValueAt(bytes, i) == ValueAt(bytes, i - 1) + 1);
  return runs;
}

static void ExpandPairs(const uint8_t* bytes, size_t count, uint64_t origin, unsigned shift,
                        uint64_t* __restrict__ offsets, uint64_t* __restrict__ lengths) noexcept {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t pair = PairAt(bytes, i);
    offsets[i] = origin + ((pair & 0xffff) << shift);
    lengths[i] = ((pair >> 16) + 1) << shift;
  }
}

static size_t CollectValues(const uint8_t* bytes, uint16_t* values) noexcept {
  size_t count = 0;
  for (unsigned i = 0; i < 1024; ++i) {
    for (uint64_t word = WordAt(bytes, i); word != 0; word &= word - 1) {
      values[count++] = static_cast<uint16_t>(i * 64 + unsigned(__builtin_ctzll(word)));
    }
  }
  return count;
}

}  // namespace containers

extern const ContainersKernels kContainers;
const ContainersKernels kContainers = {&containers::ExpandValues,  &containers::ExpandPairs,
                                       &containers::CheckValues,   &containers::CheckPairs,
                                       &containers::CollectValues, &containers::CollectFew};

#else

}  // namespace containers

#endif

}  // namespace cbt::simd::CBT_ISA_NAMESPACE

#endif  // CBT_SIMD_CONTAINERS_INL_H_

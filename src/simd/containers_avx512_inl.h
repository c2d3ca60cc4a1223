// Body of containers for level avx512: arrays and bitsets by compress instructions, 32 values or 64
// bits per iteration. Included by isa_avx512.cc inside no namespace.
#include <immintrin.h>

#define CBT_CONTAINERS_COMPRESS
#include "simd/containers_inl.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace containers {

// A value that does not follow its predecessor starts a run, and the predecessor ends one: the same
// mask selects both, from two vectors.
static size_t CompressValues(const uint8_t* values, size_t count, uint64_t origin, unsigned shift,
                             uint64_t* offsets, uint64_t* lengths) noexcept {
  constexpr size_t kLanes = 32;
  alignas(64) uint16_t starts[kMaxArrayValues + kLanes];
  // Shifted by one: the end that is found with a start belongs to the previous run.
  alignas(64) uint16_t ends[kMaxArrayValues + kLanes];
  const __m512i one = _mm512_set1_epi16(1);
  size_t runs = 0;
  // The first vector has no predecessor. Its first lane is compared with itself, so that it starts
  // a run; the end that is found with it is dropped.
  size_t at = count < kLanes ? count : kLanes;
  {
    const __mmask32 used = _cvtu32_mask32(static_cast<uint32_t>((uint64_t{1} << at) - 1));
    const __m512i now = _mm512_maskz_loadu_epi16(used, values);
    alignas(64) static constexpr uint16_t kBefore[kLanes] = {
        0,  0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14,
        15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30};
    const __m512i before = _mm512_permutexvar_epi16(_mm512_load_si512(kBefore), now);
    const __mmask32 mask = _mm512_mask_cmpneq_epi16_mask(used, now, _mm512_add_epi16(before, one));
    _mm512_store_si512(starts, _mm512_maskz_compress_epi16(mask, now));
    // Drop the end that belongs to no run.
    const __mmask32 ended = _kandn_mask32(_cvtu32_mask32(1), mask);
    _mm512_store_si512(ends, _mm512_maskz_compress_epi16(ended, before));
    runs = static_cast<size_t>(_mm_popcnt_u32(_cvtmask32_u32(mask)));
  }
  while (at < count) {
    const size_t left = count - at;
    const __mmask32 used = left >= kLanes
                               ? _cvtu32_mask32(0xffffffffu)
                               : _cvtu32_mask32(static_cast<uint32_t>((uint64_t{1} << left) - 1));
    const __m512i now = _mm512_maskz_loadu_epi16(used, values + 2 * at);
    const __m512i before = _mm512_maskz_loadu_epi16(used, values + 2 * at - 2);
    const __mmask32 mask = _mm512_mask_cmpneq_epi16_mask(used, now, _mm512_add_epi16(before, one));
    _mm512_storeu_si512(starts + runs, _mm512_maskz_compress_epi16(mask, now));
    _mm512_storeu_si512(ends + runs - 1, _mm512_maskz_compress_epi16(mask, before));
    runs += static_cast<size_t>(_mm_popcnt_u32(_cvtmask32_u32(mask)));
    at += kLanes;
  }
  ends[runs - 1] = ValueAt(values, count - 1);

  const __m128i by = _mm_cvtsi32_si128(static_cast<int>(shift));
  const __m512i first = _mm512_set1_epi64(static_cast<int64_t>(origin));
  const __m512i unit = _mm512_set1_epi64(int64_t{1} << shift);
  for (size_t i = 0; i < runs; i += 8) {
    const __m512i start = _mm512_sll_epi64(
        _mm512_cvtepu16_epi64(_mm_load_si128(reinterpret_cast<const __m128i*>(starts + i))), by);
    const __m512i end = _mm512_sll_epi64(
        _mm512_cvtepu16_epi64(_mm_load_si128(reinterpret_cast<const __m128i*>(ends + i))), by);
    _mm512_storeu_si512(offsets + i, _mm512_add_epi64(start, first));
    _mm512_storeu_si512(lengths + i, _mm512_add_epi64(_mm512_sub_epi64(end, start), unit));
  }
  return runs;
}

static void WidenPairs(const uint8_t* pairs, size_t count, uint64_t origin, unsigned shift,
                       uint64_t* offsets, uint64_t* lengths) noexcept {
  const __m128i by = _mm_cvtsi32_si128(static_cast<int>(shift));
  const __m512i first = _mm512_set1_epi64(static_cast<int64_t>(origin));
  const __m512i unit = _mm512_set1_epi64(int64_t{1} << shift);
  const __m512i low = _mm512_set1_epi64(0xffff);
  for (size_t i = 0; i < count; i += 8) {
    const auto used = static_cast<__mmask8>(count - i >= 8 ? 0xff : (1u << (count - i)) - 1);
    const __m512i pair = _mm512_cvtepu32_epi64(_mm256_maskz_loadu_epi32(used, pairs + 4 * i));
    const __m512i start = _mm512_sll_epi64(_mm512_and_si512(pair, low), by);
    const __m512i more = _mm512_sll_epi64(_mm512_srli_epi64(pair, 16), by);
    _mm512_storeu_si512(offsets + i, _mm512_add_epi64(start, first));
    _mm512_storeu_si512(lengths + i, _mm512_add_epi64(more, unit));
  }
}

// The bytes 0 .. 63 compressed by a word are the indexes of its set bits.
static size_t CompressBits(const uint8_t* words, uint16_t* values) noexcept {
  alignas(64) static constexpr uint8_t kPlaces[64] = {
      0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
      22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
      44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
  const __m512i places = _mm512_load_si512(kPlaces);
  size_t count = 0;
  for (size_t i = 0; i < 1024; i += 8) {
    const __m512i eight = _mm512_loadu_si512(words + 8 * i);
    unsigned some = _cvtmask8_u32(_mm512_test_epi64_mask(eight, eight));
    for (; some != 0; some &= some - 1) {
      const size_t index = i + static_cast<size_t>(__builtin_ctz(some));
      const uint64_t word = WordAt(words, index);
      const auto ones = static_cast<size_t>(_mm_popcnt_u64(word));
      const __m512i base = _mm512_set1_epi16(static_cast<int16_t>(index * 64));
      const __m512i bytes = _mm512_maskz_compress_epi8(word, places);
      _mm512_storeu_si512(
          values + count,
          _mm512_add_epi16(_mm512_cvtepu8_epi16(_mm512_castsi512_si256(bytes)), base));
      if (ones > 32) {
        _mm512_storeu_si512(
            values + count + 32,
            _mm512_add_epi16(_mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(bytes, 1)), base));
      }
      count += ones;
    }
  }
  return count;
}

}  // namespace containers

extern const ContainersKernels kContainers;
const ContainersKernels kContainers = {&containers::CompressValues, &containers::WidenPairs,
                                       &containers::CheckValues,    &containers::CheckPairs,
                                       &containers::CompressBits,   &containers::CollectFew};

}  // namespace cbt::simd::CBT_ISA_NAMESPACE

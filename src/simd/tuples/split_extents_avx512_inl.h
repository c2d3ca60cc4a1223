// Body of split_extents for level avx512: eight extents at a time. Included by isa_avx512.cc inside
// no namespace, once.
#include <immintrin.h>

#include "simd/tuples/split_extents.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace split_extents {

// The first pieces of eight extents and their second ones, in turn; those in `kept` are written.
// Returns their number. May write 16 elements.
static inline size_t WritePieces(__m512i first, __m512i second, __mmask16 kept,
                                 uint64_t* out) noexcept {
  const __m512i low = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
  const __m512i high = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
  const auto low_kept = static_cast<__mmask8>(kept);
  const auto high_kept = static_cast<__mmask8>(kept >> 8);
  _mm512_storeu_si512(
      out, _mm512_maskz_compress_epi64(low_kept, _mm512_permutex2var_epi64(first, low, second)));
  const auto written = static_cast<size_t>(__builtin_popcount(low_kept));
  _mm512_storeu_si512(
      out + written,
      _mm512_maskz_compress_epi64(high_kept, _mm512_permutex2var_epi64(first, high, second)));
  return written + static_cast<size_t>(__builtin_popcount(high_kept));
}

static SplitScan Split(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                       uint64_t most, uint64_t limit, uint64_t* piece_offsets,
                       uint64_t* piece_lengths, size_t room) noexcept {
  constexpr size_t kLanes = 8;
  const auto same = [](uint64_t value) { return _mm512_set1_epi64(static_cast<long long>(value)); };
  const __m512i longest = same(most);
  const __m512i limits = same(limit);
  const __m512i two = same(2 * most);
  size_t pieces = 0;
  size_t i = 0;
  for (; count - i >= kLanes && room - pieces >= 2 * kLanes; i += kLanes) {
    const __m512i offset = _mm512_loadu_si512(offsets + i);
    const __m512i length =
        _mm512_min_epu64(_mm512_loadu_si512(lengths + i), _mm512_sub_epi64(limits, offset));
    if (_mm512_cmpgt_epu64_mask(length, two) != 0) break;
    const unsigned second = _mm512_cmpgt_epu64_mask(length, longest);
    const auto kept = static_cast<__mmask16>(0x5555u | _pdep_u32(second, 0xaaaau));
    WritePieces(offset, _mm512_add_epi64(offset, longest), kept, piece_offsets + pieces);
    pieces += WritePieces(_mm512_min_epu64(length, longest), _mm512_sub_epi64(length, longest),
                          kept, piece_lengths + pieces);
  }
  for (; i < count && room - pieces >= 2; ++i) {
    const uint64_t offset = offsets[i];
    const uint64_t rest = limit - offset;
    const uint64_t length = lengths[i] < rest ? lengths[i] : rest;
    if (length > 2 * most) break;
    piece_offsets[pieces] = offset;
    piece_lengths[pieces] = length < most ? length : most;
    piece_offsets[pieces + 1] = offset + most;
    piece_lengths[pieces + 1] = length - most;
    pieces += length > most ? 2 : 1;
  }
  return {i, pieces};
}

}  // namespace split_extents

extern const SplitExtentsKernels kSplitExtents;
const SplitExtentsKernels kSplitExtents = {&split_extents::Split};

}  // namespace cbt::simd::CBT_ISA_NAMESPACE

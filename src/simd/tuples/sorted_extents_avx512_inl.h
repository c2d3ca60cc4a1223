// Body of sorted_extents for level avx512. Included by isa_avx512.cc inside no namespace, once.
#include <immintrin.h>

#include "simd/tuples/sorted_extents.h"

namespace cbt::simd::CBT_ISA_NAMESPACE {
namespace sorted_extents {

constexpr size_t kLanes = 8;

static void Bounds(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                   uint64_t alignment, uint64_t* starts, uint64_t* ends) noexcept {
  const __m512i rest = _mm512_set1_epi64(static_cast<long long>(alignment - 1));
  size_t i = 0;
  for (; count - i >= kLanes; i += kLanes) {
    const __m512i offset = _mm512_loadu_si512(offsets + i);
    const __m512i end = _mm512_add_epi64(offset, _mm512_loadu_si512(lengths + i));
    _mm512_storeu_si512(starts + i, _mm512_andnot_si512(rest, offset));
    _mm512_storeu_si512(ends + i, _mm512_andnot_si512(rest, _mm512_add_epi64(end, rest)));
  }
  for (; i < count; ++i) {
    starts[i] = offsets[i] & ~(alignment - 1);
    ends[i] = (offsets[i] + lengths[i] + alignment - 1) & ~(alignment - 1);
  }
}

// One stage of a bitonic network: compares each lane with its partner; lanes in `high` take the
// larger value, the others the smaller.
static inline __m512i Stage(__m512i values, __m512i partners, __mmask8 high) noexcept {
  const __m512i smaller = _mm512_min_epu64(values, partners);
  return _mm512_mask_max_epu64(smaller, high, values, partners);
}

// Sorts a bitonic vector in ascending order.
static inline __m512i Sort(__m512i values) noexcept {
  values = Stage(values, _mm512_shuffle_i64x2(values, values, 0x4e), 0xf0);
  values = Stage(values, _mm512_permutex_epi64(values, 0x4e), 0xcc);
  return Stage(values, _mm512_shuffle_epi32(values, _MM_PERM_BADC), 0xaa);
}

// A merge of two ascending arrays in progress.
struct Chain {
  __m512i kept;  // ascending, and not below anything written so far
  __m512i next;
  const uint64_t* a;
  const uint64_t* a_end;
  const uint64_t* b;
  const uint64_t* b_end;
  uint64_t* out;
  bool begun;

  // True if both sides have a vector to start with.
  bool Begin() noexcept {
    begun = a_end - a >= static_cast<long>(kLanes) && b_end - b >= static_cast<long>(kLanes);
    if (!begun) return false;
    kept = _mm512_loadu_si512(a);
    next = _mm512_loadu_si512(b);
    a += kLanes;
    b += kLanes;
    return true;
  }

  // Writes the eight smallest of sixteen: nothing that follows is smaller.
  void Emit() noexcept {
    const __m512i backwards = _mm512_set_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i reversed = _mm512_permutexvar_epi64(backwards, next);
    _mm512_storeu_si512(out, Sort(_mm512_min_epu64(kept, reversed)));
    kept = Sort(_mm512_max_epu64(kept, reversed));
    out += kLanes;
  }

  // Loads from the side whose next value is smaller.
  bool Load() noexcept {
    if (a_end - a < static_cast<long>(kLanes) || b_end - b < static_cast<long>(kLanes)) {
      return false;
    }
    const bool from_a = *a <= *b;
    next = _mm512_loadu_si512(from_a ? a : b);
    a += from_a ? kLanes : 0;
    b += from_a ? 0 : kLanes;
    return true;
  }

  // Less than a vector is left on one side: a scalar three-way merge, then a two-way merge.
  void Finish() noexcept {
    if (begun) {
      uint64_t hand[kLanes];
      _mm512_storeu_si512(hand, kept);
      const uint64_t* h = hand;
      const uint64_t* const h_end = hand + kLanes;
      while (h != h_end) {
        const uint64_t left = a != a_end ? *a : UINT64_MAX;
        const uint64_t right = b != b_end ? *b : UINT64_MAX;
        if (*h <= left && *h <= right) {
          *out++ = *h++;
        } else if (left <= right) {
          *out++ = *a++;
        } else {
          *out++ = *b++;
        }
      }
    }
    while (a != a_end && b != b_end) {
      const uint64_t left = *a;
      const uint64_t right = *b;
      const bool from_a = left <= right;
      *out++ = from_a ? left : right;
      a += from_a ? 1 : 0;
      b += from_a ? 0 : 1;
    }
    // One of the two is empty.
    const auto a_left = static_cast<size_t>(a_end - a);
    if (a_left != 0) __builtin_memcpy(out, a, a_left * sizeof(*a));
    const auto b_left = static_cast<size_t>(b_end - b);
    if (b_left != 0) __builtin_memcpy(out + a_left, b, b_left * sizeof(*b));
  }
};

// Each chain depends on its previous step: starts and ends are merged in parallel.
// NOLINTNEXTLINE(readability-non-const-parameter): both are written through
static void Merge(const SortedBounds& a, const SortedBounds& b, uint64_t* starts,
                  uint64_t* ends) noexcept {  // NOLINT(readability-non-const-parameter)
  const __m512i none = _mm512_setzero_si512();
  Chain first = {none,   none, a.starts, a.starts + a.count, b.starts, b.starts + b.count,
                 starts, false};
  Chain second = {none, none, a.ends, a.ends + a.count, b.ends, b.ends + b.count, ends, false};
  bool first_more = first.Begin();
  bool second_more = second.Begin();
  while (first_more && second_more) {
    first.Emit();
    second.Emit();
    first_more = first.Load();
    second_more = second.Load();
  }
  for (; first_more; first_more = first.Load()) first.Emit();
  for (; second_more; second_more = second.Load()) second.Emit();
  first.Finish();
  second.Finish();
}

static size_t Unite(const uint64_t* starts, const uint64_t* ends, size_t count, uint64_t gap,
                    uint64_t* offsets, uint64_t* lengths) noexcept {
  if (count == 0) return 0;
  const __m512i most =
      _mm512_set1_epi64(static_cast<long long>(gap > INT64_MAX ? uint64_t{INT64_MAX} : gap));
  size_t runs = 1;
  offsets[0] = starts[0];
  size_t i = 1;
  for (; count - i >= kLanes; i += kLanes) {
    const __m512i start = _mm512_loadu_si512(starts + i);
    const __m512i end = _mm512_loadu_si512(ends + i - 1);
    const __mmask8 begins = _mm512_cmpgt_epi64_mask(_mm512_sub_epi64(start, end), most);
    // `lengths` holds ends for now.
    _mm512_storeu_si512(offsets + runs, _mm512_maskz_compress_epi64(begins, start));
    _mm512_storeu_si512(lengths + runs - 1, _mm512_maskz_compress_epi64(begins, end));
    runs += static_cast<size_t>(__builtin_popcount(begins));
  }
  for (; i < count; ++i) {
    offsets[runs] = starts[i];
    lengths[runs - 1] = ends[i - 1];
    runs += starts[i] > ends[i - 1] && starts[i] - ends[i - 1] > gap ? 1 : 0;
  }
  lengths[runs - 1] = ends[count - 1];
  for (size_t k = 0; k < runs; ++k) lengths[k] -= offsets[k];
  return runs;
}

static size_t Join(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                   const ExtentRounding& rounding, OpenExtent& open, uint64_t* joined_offsets,
                   uint64_t* joined_lengths) noexcept {
  if (count == 0) return 0;
  const uint64_t rest = rounding.alignment - 1;
  const auto end_of = [&](size_t i) {
    const uint64_t end = (offsets[i] + lengths[i] + rest) & ~rest;
    return end < rounding.limit ? end : rounding.limit;
  };
  size_t i = open.start == open.end ? 1 : 0;
  joined_offsets[0] = i != 0 ? offsets[0] & ~rest : open.start;
  uint64_t end = i != 0 ? end_of(0) : open.end;
  const auto same = [](uint64_t value) { return _mm512_set1_epi64(static_cast<long long>(value)); };
  const __m512i rests = same(rest);
  const __m512i limits = same(rounding.limit);
  const __m512i most = same(rounding.gap > INT64_MAX ? uint64_t{INT64_MAX} : rounding.gap);
  __m512i before = same(end);
  size_t runs = 0;
  for (; count - i >= kLanes; i += kLanes) {
    const __m512i offset = _mm512_loadu_si512(offsets + i);
    const __m512i sum = _mm512_add_epi64(offset, _mm512_loadu_si512(lengths + i));
    const __m512i start = _mm512_andnot_si512(rests, offset);
    const __m512i now =
        _mm512_min_epu64(_mm512_andnot_si512(rests, _mm512_add_epi64(sum, rests)), limits);
    const __m512i previous = _mm512_alignr_epi64(now, before, kLanes - 1);
    const __mmask8 begins = _mm512_cmpgt_epi64_mask(_mm512_sub_epi64(start, previous), most);
    // `joined_lengths` holds ends for now.
    _mm512_storeu_si512(joined_offsets + runs + 1, _mm512_maskz_compress_epi64(begins, start));
    _mm512_storeu_si512(joined_lengths + runs, _mm512_maskz_compress_epi64(begins, previous));
    runs += static_cast<size_t>(__builtin_popcount(begins));
    before = now;
  }
  if (i > 0) end = end_of(i - 1);
  for (; i < count; ++i) {
    const uint64_t start = offsets[i] & ~rest;
    joined_offsets[runs + 1] = start;
    joined_lengths[runs] = end;
    runs += start > end && start - end > rounding.gap ? 1 : 0;
    end = end_of(i);
  }
  open = {joined_offsets[runs], end};
  for (size_t k = 0; k < runs; ++k) joined_lengths[k] -= joined_offsets[k];
  return runs;
}

static size_t Overlap(const uint64_t* starts, const uint64_t* ends, size_t count, uint64_t* offsets,
                      uint64_t* lengths) noexcept {
  if (count == 0) return 0;
  size_t found = 0;
  size_t i = 1;
  for (; count - i >= kLanes; i += kLanes) {
    const __m512i start = _mm512_loadu_si512(starts + i);
    const __m512i end = _mm512_loadu_si512(ends + i - 1);
    const __mmask8 both = _mm512_cmpgt_epi64_mask(end, start);
    _mm512_storeu_si512(offsets + found, _mm512_maskz_compress_epi64(both, start));
    _mm512_storeu_si512(lengths + found,
                        _mm512_maskz_compress_epi64(both, _mm512_sub_epi64(end, start)));
    found += static_cast<size_t>(__builtin_popcount(both));
  }
  for (; i < count; ++i) {
    offsets[found] = starts[i];
    lengths[found] = ends[i - 1] - starts[i];
    found += ends[i - 1] > starts[i] ? 1 : 0;
  }
  return found;
}

}  // namespace sorted_extents

extern const SortedExtentsKernels kSortedExtents;
const SortedExtentsKernels kSortedExtents = {&sorted_extents::Bounds, &sorted_extents::Merge,
                                             &sorted_extents::Unite, &sorted_extents::Join,
                                             &sorted_extents::Overlap};

}  // namespace cbt::simd::CBT_ISA_NAMESPACE

// Scalar reference of sorted_extents, the list of its variants, and the choice between them.
//
// The reference does not branch on data: without a compress instruction, vectors below avx512 would
// gain nothing.
#include "simd/tuples/sorted_extents.h"

#include <algorithm>
#include <cstring>

#include "simd/dispatch/variants.h"

namespace cbt::simd {
namespace scalar {
namespace {

void Bounds(const uint64_t* offsets, const uint64_t* lengths, size_t count, uint64_t alignment,
            uint64_t* starts, uint64_t* ends) noexcept {
  const uint64_t rest = alignment - 1;
  for (size_t i = 0; i < count; ++i) {
    starts[i] = offsets[i] & ~rest;
    ends[i] = (offsets[i] + lengths[i] + rest) & ~rest;
  }
}

void MergeNumbers(const uint64_t* a, size_t a_count, const uint64_t* b, size_t b_count,
                  uint64_t* out) noexcept {
  size_t i = 0;
  size_t j = 0;
  while (i < a_count && j < b_count) {
    const uint64_t left = a[i];
    const uint64_t right = b[j];
    const bool from_a = left <= right;
    *out++ = from_a ? left : right;
    i += from_a ? 1 : 0;
    j += from_a ? 0 : 1;
  }
  std::copy(a + i, a + a_count, out);
  std::copy(b + j, b + b_count, out + (a_count - i));
}

void Merge(const SortedBounds& a, const SortedBounds& b, uint64_t* starts,
           uint64_t* ends) noexcept {
  MergeNumbers(a.starts, a.count, b.starts, b.count, starts);
  MergeNumbers(a.ends, a.count, b.ends, b.count, ends);
}

size_t Unite(const uint64_t* starts, const uint64_t* ends, size_t count, uint64_t gap,
             uint64_t* offsets, uint64_t* lengths) noexcept {
  if (count == 0) return 0;
  size_t runs = 1;
  offsets[0] = starts[0];
  for (size_t i = 1; i < count; ++i) {
    // Always write, but keep only beginnings. `lengths` holds ends for now.
    offsets[runs] = starts[i];
    lengths[runs - 1] = ends[i - 1];
    runs += starts[i] > ends[i - 1] && starts[i] - ends[i - 1] > gap ? 1 : 0;
  }
  lengths[runs - 1] = ends[count - 1];
  for (size_t i = 0; i < runs; ++i) lengths[i] -= offsets[i];
  return runs;
}

size_t Join(const uint64_t* offsets, const uint64_t* lengths, size_t count,
            const ExtentRounding& rounding, OpenExtent& open, uint64_t* joined_offsets,
            uint64_t* joined_lengths) noexcept {
  if (count == 0) return 0;
  const uint64_t rest = rounding.alignment - 1;
  const auto start_of = [&](size_t i) { return offsets[i] & ~rest; };
  const auto end_of = [&](size_t i) {
    return std::min((offsets[i] + lengths[i] + rest) & ~rest, rounding.limit);
  };
  const size_t first = open.start == open.end ? 1 : 0;
  joined_offsets[0] = first != 0 ? start_of(0) : open.start;
  uint64_t end = first != 0 ? end_of(0) : open.end;
  size_t runs = 0;
  for (size_t i = first; i < count; ++i) {
    // As in Unite().
    const uint64_t start = start_of(i);
    joined_offsets[runs + 1] = start;
    joined_lengths[runs] = end;
    runs += start > end && start - end > rounding.gap ? 1 : 0;
    end = end_of(i);
  }
  open = {joined_offsets[runs], end};
  for (size_t i = 0; i < runs; ++i) joined_lengths[i] -= joined_offsets[i];
  return runs;
}

size_t Overlap(const uint64_t* starts, const uint64_t* ends, size_t count, uint64_t* offsets,
               uint64_t* lengths) noexcept {
  size_t found = 0;
  for (size_t i = 1; i < count; ++i) {
    offsets[found] = starts[i];
    lengths[found] = ends[i - 1] - starts[i];
    found += ends[i - 1] > starts[i] ? 1 : 0;
  }
  return found;
}

}  // namespace

const SortedExtentsKernels kSortedExtents = {&Bounds, &Merge, &Unite, &Join, &Overlap};

}  // namespace scalar

namespace {

// Two lists of disjoint extents, of every pair of lengths up to some vectors.
bool KnownAnswer(const SortedExtentsKernels& candidate) noexcept {
  constexpr size_t kMost = 40;
  for (size_t round = 0; round < kMost; ++round) {
    const size_t counts[2] = {round, (round * 7) % kMost};
    const size_t count = counts[0] + counts[1];
    uint64_t starts[2][kMost];
    uint64_t ends[2][kMost];
    CheckPattern pattern;
    for (size_t list = 0; list < 2; ++list) {
      uint64_t at = 0;
      for (size_t i = 0; i < counts[list]; ++i) {
        starts[list][i] = at += pattern.Next() % 6;
        ends[list][i] = at += 1 + pattern.Next() % 6;
      }
    }
    uint64_t want[2][2 * kMost + kSortedSlack];
    uint64_t got[2][2 * kMost + kSortedSlack];
    const SortedBounds lists[2] = {{starts[0], ends[0], counts[0]},
                                   {starts[1], ends[1], counts[1]}};
    scalar::kSortedExtents.merge(lists[0], lists[1], want[0], want[1]);
    candidate.merge(lists[0], lists[1], got[0], got[1]);
    const auto same = [&](const uint64_t* x, const uint64_t* y, size_t places) {
      return std::memcmp(x, y, places * sizeof(*x)) == 0;
    };
    if (!same(got[0], want[0], count) || !same(got[1], want[1], count)) return false;
    for (const uint64_t alignment : {uint64_t{1}, uint64_t{4}}) {
      uint64_t out[4][kMost];
      scalar::kSortedExtents.bounds(starts[0], ends[0], counts[0], alignment, out[0], out[1]);
      candidate.bounds(starts[0], ends[0], counts[0], alignment, out[2], out[3]);
      if (!same(out[0], out[2], counts[0]) || !same(out[1], out[3], counts[0])) return false;
    }
    for (const uint64_t gap : {uint64_t{0}, uint64_t{1}, uint64_t{3}}) {
      uint64_t out[4][2 * kMost + kSortedSlack];
      const size_t runs =
          scalar::kSortedExtents.unite(want[0], want[1], count, gap, out[0], out[1]);
      if (candidate.unite(want[0], want[1], count, gap, out[2], out[3]) != runs) return false;
      if (!same(out[0], out[2], runs) || !same(out[1], out[3], runs)) return false;
      for (const OpenExtent before : {OpenExtent{0, 0}, OpenExtent{0, 2}}) {
        const ExtentRounding rounding = {4, 100, gap};
        uint64_t spans[kMost];
        for (size_t i = 0; i < counts[0]; ++i) spans[i] = ends[0][i] - starts[0][i];
        OpenExtent open[2] = {before, before};
        const size_t joined = scalar::kSortedExtents.join(starts[0], spans, counts[0], rounding,
                                                          open[0], out[0], out[1]);
        if (candidate.join(starts[0], spans, counts[0], rounding, open[1], out[2], out[3]) !=
                joined ||
            open[0].start != open[1].start || open[0].end != open[1].end ||
            !same(out[0], out[2], joined) || !same(out[1], out[3], joined)) {
          return false;
        }
      }
      const size_t both = scalar::kSortedExtents.overlap(want[0], want[1], count, out[0], out[1]);
      if (candidate.overlap(want[0], want[1], count, out[2], out[3]) != both) return false;
      if (!same(out[0], out[2], both) || !same(out[1], out[3], both)) return false;
    }
  }
  return true;
}

}  // namespace

CBT_DEFINE_KERNELS(SortedExtents,
                   CBT_SCALAR_VARIANT(kSortedExtents) CBT_AVX512_VARIANT(kSortedExtents))

}  // namespace cbt::simd

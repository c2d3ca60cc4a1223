// Kernel family sorted_extents: set operations on extents whose starts and ends are two ascending
// arrays.
//
// The arrays are sorted independently: starts[i] and ends[i] need not belong to the same extent.
// That suffices, and lets lists be merged as plain numbers. At the i-th start s (counted from 0), i
// extents have begun before it, and as many of them have ended as there are ends <= s. So
// everything has ended before s, and s begins a run of the union, exactly if ends[i - 1] < s. If at
// most two extents overlap anywhere, s lies inside the other one exactly if ends[i - 1] > s, which
// is then the next end: the overlap is [s, ends[i - 1]).
//
// Contract header: instruction-set files include it, so nothing in it is inline.
#ifndef CBT_SIMD_SORTED_EXTENTS_H_
#define CBT_SIMD_SORTED_EXTENTS_H_

#include <cstddef>
#include <cstdint>

#include "simd/dispatch/levels.h"

namespace cbt::simd {

// Elements past a result that may be overwritten.
inline constexpr size_t kSortedSlack = 8;

// Ascending starts and ascending ends.
struct SortedBounds {
  const uint64_t* starts;
  const uint64_t* ends;
  size_t count;
};

// How extents are rounded and united.
struct ExtentRounding {
  uint64_t alignment;  // outward to multiples of this, a power of two
  uint64_t limit;      // ends above this are cut
  uint64_t gap;        // neighbours with at most this between them are merged
};

// An extent that later ones may still be merged with; empty (start == end) if no extent is open.
struct OpenExtent {
  uint64_t start;
  uint64_t end;
};

// All values are below 2^63; arrays need no alignment; outputs don't overlap inputs.
struct SortedExtentsKernels {
  // starts[i] = offsets[i] and ends[i] = offsets[i] + lengths[i], rounded outward to multiples of
  // `alignment`, a power of two. Sums are below 2^64.
  void (*bounds)(const uint64_t* offsets, const uint64_t* lengths, size_t count, uint64_t alignment,
                 uint64_t* starts, uint64_t* ends) noexcept;

  // Merges two lists: their starts, and independently their ends. Each output has room for a.count
  // + b.count + kSortedSlack numbers.
  void (*merge)(const SortedBounds& a, const SortedBounds& b, uint64_t* starts,
                uint64_t* ends) noexcept;

  // The union of `count` extents as maximal ones; neighbours with at most `gap` between them are
  // merged. Returns their number. Outputs have room for count + kSortedSlack.
  size_t (*unite)(const uint64_t* starts, const uint64_t* ends, size_t count, uint64_t gap,
                  uint64_t* offsets, uint64_t* lengths) noexcept;

  // The same for extents that follow `open` and begin in ascending order, rounded first: bounds(),
  // the limit and unite() in one pass. What is complete is written and counted; the last one is
  // left in `open`. Outputs have room for count + 1 + kSortedSlack.
  size_t (*join)(const uint64_t* offsets, const uint64_t* lengths, size_t count,
                 const ExtentRounding& rounding, OpenExtent& open, uint64_t* joined_offsets,
                 uint64_t* joined_lengths) noexcept;

  // The intersection of two lists of disjoint extents; the arrays hold the extents of both. Returns
  // the number of extents, which may touch. Outputs as above.
  size_t (*overlap)(const uint64_t* starts, const uint64_t* ends, size_t count, uint64_t* offsets,
                    uint64_t* lengths) noexcept;
};

CBT_DECLARE_AT_LEVEL(scalar, SortedExtentsKernels, kSortedExtents)
CBT_DECLARE_AT_LEVEL(avx512, SortedExtentsKernels, kSortedExtents)

}  // namespace cbt::simd

#endif  // CBT_SIMD_SORTED_EXTENTS_H_

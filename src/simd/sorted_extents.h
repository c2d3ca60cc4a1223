// Kernel family sorted_extents: set operations on extents whose starts and ends are two ascending
// arrays.
//
// The arrays are sorted independently: starts[i] and ends[i] need not belong to the same extent.
// That is enough, and why lists can be merged as plain numbers. Where the i-th start s lies
// (counted from 0), i extents have begun before it; how many of them have ended is how many ends
// are <= s. So everything has ended before s, and s begins a run of the union, exactly when ends[i
// - 1] < s; and when at most two extents lie over each other, s lies in the other one exactly when
// ends[i - 1] > s, which is then the next end of the two: the overlap is [s, ends[i - 1]).
//
// Contract header: instruction-set files include it, so it holds nothing inline.
#ifndef CBT_SIMD_SORTED_EXTENTS_H_
#define CBT_SIMD_SORTED_EXTENTS_H_

#include <cstddef>
#include <cstdint>

namespace cbt::simd {

// Places behind a result that may be overwritten.
inline constexpr size_t kSortedSlack = 8;

// Ascending starts and ascending ends.
struct SortedExtents {
  const uint64_t* starts;
  const uint64_t* ends;
  size_t count;
};

// All values are below 2^63; arrays need no alignment; outputs don't overlap inputs.
struct SortedExtentsKernels {
  // starts[i] = offsets[i] and ends[i] = offsets[i] + lengths[i], rounded outward to multiples of
  // `alignment`, a power of two. Sums are below 2^64.
  void (*bounds)(const uint64_t* offsets, const uint64_t* lengths, size_t count, uint64_t alignment,
                 uint64_t* starts, uint64_t* ends) noexcept;

  // Merges two lists: their starts, and independently their ends. Each output has a.count + b.count
  // + kSortedSlack places.
  void (*merge)(const SortedExtents& a, const SortedExtents& b, uint64_t* starts,
                uint64_t* ends) noexcept;

  // The union of `count` extents as maximal ones, neighbours with at most `gap` between them
  // united. Returns how many they are. Outputs have count + kSortedSlack places.
  size_t (*unite)(const uint64_t* starts, const uint64_t* ends, size_t count, uint64_t gap,
                  uint64_t* offsets, uint64_t* lengths) noexcept;

  // What two lists of disjoint extents have in common; the arrays hold those of both. Returns the
  // number of extents, which may touch. Outputs as above.
  size_t (*overlap)(const uint64_t* starts, const uint64_t* ends, size_t count, uint64_t* offsets,
                    uint64_t* lengths) noexcept;
};

namespace scalar {
extern const SortedExtentsKernels kSortedExtents;
}
namespace avx512 {
extern const SortedExtentsKernels kSortedExtents;
}

}  // namespace cbt::simd

#endif  // CBT_SIMD_SORTED_EXTENTS_H_

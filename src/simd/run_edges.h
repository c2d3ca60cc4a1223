// Kernel family run_edges: where runs of set bits begin and end in one bitmap or in the
// combination of two, without building the combination.
//
// The edges of the runs in x are the set bits of x ^ (x << 1 | carry): in turn the first bit of a
// run and the first bit after it. Words in which nothing changes cost no edge and no branch but
// one.
//
// Contract header: instruction-set files include it, so it holds nothing inline.
#ifndef CBT_SIMD_RUN_EDGES_H_
#define CBT_SIMD_RUN_EDGES_H_

#include <cstddef>
#include <cstdint>

namespace cbt::simd {

// What one scan did.
struct EdgeScan {
  size_t words;  // words consumed
  size_t edges;  // edges written
};

// The most edges one word can have; a scan stops when there is less room than that.
inline constexpr size_t kEdgesPerWord = 64;

// Scans up to `words` little-endian 64-bit words at `a` (and `b`; may be null for an operation on
// one bitmap), any alignment, and writes the bit positions of the edges to `edges` in ascending
// order; bit 0 of the first word has the position `position`.
// `carry`: 1 when the bit before the first one is set, so that a run is open, else 0.
// `room`:  capacity of `edges`, >= kEdgesPerWord. Stops early, after a whole word, when fewer than
//          kEdgesPerWord places are left.
// A run that is open at the end has no closing edge: the next call's carry is (carry + edges) % 2.
using RunEdgesFn = EdgeScan(const uint8_t* a, const uint8_t* b, size_t words, uint64_t position,
                            uint64_t carry, uint64_t* edges, size_t room) noexcept;

// One variant: a function for each operation on words.
struct RunEdgesKernels {
  RunEdgesFn* single;     // a
  RunEdgesFn* exclusive;  // a ^ b
  RunEdgesFn* and_not;    // b & ~a
  RunEdgesFn* either;     // a | b
  RunEdgesFn* both;       // a & b
};

namespace scalar {
extern const RunEdgesKernels kRunEdges;
}
namespace sse42 {
extern const RunEdgesKernels kRunEdges;
}
namespace avx2 {
extern const RunEdgesKernels kRunEdges;
}
namespace avx512 {
extern const RunEdgesKernels kRunEdges;
}
namespace neon {
extern const RunEdgesKernels kRunEdges;
}

}  // namespace cbt::simd

#endif  // CBT_SIMD_RUN_EDGES_H_

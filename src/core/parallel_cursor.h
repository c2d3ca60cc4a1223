// A cursor on several threads: contiguous parts of the volume, one ordered stream.
#ifndef CBT_CORE_PARALLEL_CURSOR_H_
#define CBT_CORE_PARALLEL_CURSOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "cbt/cursor.h"
#include "cbt/executor.h"

namespace cbt {

// How a volume is cut into parts.
struct ParallelParts {
  // Returns a cursor with the volume's capacity and granularity that reports maximal extents, cut
  // at `end` (bytes, a multiple of the granularity, or the capacity), and nothing past it. Called
  // by several threads at once; each cursor is used by one thread at a time, on the same data.
  std::function<std::unique_ptr<ExtentCursor>(uint64_t end)> make;

  // Blocks of the first part, and the limits for any part; multiples of 64. A part should have
  // about kPartExtents extents, so later parts are sized by the density of earlier ones.
  uint64_t first_blocks = uint64_t{1} << 22;
  uint64_t min_blocks = uint64_t{1} << 16;
  uint64_t max_blocks = uint64_t{1} << 25;
};

// The extents of `parts`, joined where the end of a part cuts one: exactly the stream of one cursor
// over the whole volume. `threads` (>= 2) includes the one that calls Next(), which works on parts
// while it waits, so that progress does not depend on `executor`. An exception in another thread
// becomes an error when its part is reached: RESOURCE_EXHAUSTED for std::bad_alloc, otherwise
// INTERNAL. Memory: at most 2 MiB of extents per part, two parts per thread.
// Requires: a geometry that CheckGeometry() accepts; extents of the parts are maximal.
std::unique_ptr<ExtentCursor> MakeParallelCursor(ParallelParts parts, uint64_t capacity,
                                                 uint64_t granularity, Executor& executor,
                                                 size_t threads);

}  // namespace cbt

#endif  // CBT_CORE_PARALLEL_CURSOR_H_

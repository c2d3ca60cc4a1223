// One cursor whose work several threads do: contiguous parts of the volume, one ordered stream.
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
  // A cursor with the volume's capacity and granularity that reports maximal extents, cut at `end`
  // (bytes, a multiple of the granularity, or the capacity), and nothing behind it. Called by
  // several threads at once; the cursors are used by one thread each, on the same data.
  std::function<std::unique_ptr<ExtentCursor>(uint64_t end)> make;

  // Blocks of the first part, and of any part. A part should hold kPartExtents extents or so;
  // later parts go by what earlier ones had. Multiples of 64.
  uint64_t first_blocks = uint64_t{1} << 22;
  uint64_t min_blocks = uint64_t{1} << 16;
  uint64_t max_blocks = uint64_t{1} << 25;
};

// The extents that `parts` give, joined where a part's end cuts one: the same stream, to the bit,
// as one cursor over the whole would give. `threads` (>= 2) counts the one that calls Next(), which
// works too when what it waits for is not there, so that progress does not depend on `executor`.
// What a part throws in another thread is an error in its turn: RESOURCE_EXHAUSTED for
// std::bad_alloc, else INTERNAL.
// Memory: at most 2 MiB of extents a part, two parts a thread.
// Requires: a geometry that CheckGeometry() accepts; extents of the parts are maximal.
std::unique_ptr<ExtentCursor> MakeParallelCursor(ParallelParts parts, uint64_t capacity,
                                                 uint64_t granularity, Executor& executor,
                                                 size_t threads);

}  // namespace cbt

#endif  // CBT_CORE_PARALLEL_CURSOR_H_

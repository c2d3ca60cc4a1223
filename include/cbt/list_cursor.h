// Cursors over extents that are already in memory.
#ifndef CBT_LIST_CURSOR_H_
#define CBT_LIST_CURSOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"

namespace cbt {

// A cursor over `extents`, which it keeps: move the vector in, or it is copied. For lists returned
// by a management API.
//
//   auto cursor = cbt::MakeExtentCursor(std::move(extents), {.capacity = 64 * cbt::kGiB,
//                                                            .granularity = 4 * cbt::kKiB});
//
// Requires: extents ascend, don't overlap (they may touch), have length > 0 and end at or below the
//           capacity; each starts and ends at a multiple of the granularity or at the capacity.
// Errors:   INVALID_ARGUMENT, naming the first invalid extent.
// Cost:     O(n) to check; Seek() is O(log n), a few hundred nanoseconds in a list of millions.
//           Memory: the vector, and 1/128 of it.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeExtentCursor(std::vector<Extent> extents,
                                                               const VolumeGeometry& geometry);

}  // namespace cbt

#endif  // CBT_LIST_CURSOR_H_

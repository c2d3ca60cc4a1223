// Cursors over extents that are already in memory.
#ifndef CBT_LIST_CURSOR_H_
#define CBT_LIST_CURSOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"

namespace cbt {

// A cursor over a copy of `extents`. For lists returned by a management API.
// Requires: extents ascend, don't overlap (they may touch), have length > 0 and end at or below
//           `capacity` (bytes); each starts and ends at a multiple of `granularity` or at the
//           capacity.
// Errors:   INVALID_ARGUMENT, naming the first invalid extent.
// Cost:     O(n) to check and copy; Seek() is O(log n), a few hundred nanoseconds in a list of
//           millions.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeExtentCursor(const std::vector<Extent>& extents,
                                                               uint64_t capacity,
                                                               uint64_t granularity = 1);

}  // namespace cbt

#endif  // CBT_LIST_CURSOR_H_

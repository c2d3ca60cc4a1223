// What callers learn about a snapshot of a tracked volume.
#ifndef CBT_PROGRAMS_VOLUME_SNAPSHOT_INFO_H_
#define CBT_PROGRAMS_VOLUME_SNAPSHOT_INFO_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace cbt::volume {

struct SnapshotInfo {
  std::string id = {};
  int64_t created_ns = 0;  // nanoseconds since 1970
  uint64_t size = 0;       // bytes: the capacity of the volume at that time
  // False while its data is still being copied, on file systems that can't clone files. Its point
  // in time is fixed already, but its data can't be read yet.
  bool ready = false;

  friend bool operator==(const SnapshotInfo&, const SnapshotInfo&) = default;
};

inline constexpr size_t kMaxSnapshotIdBytes = 200;

// OK if `id` can name a snapshot: 1 to kMaxSnapshotIdBytes letters, digits, '-', '_' and '.' of
// ASCII, of which the first is a letter or a digit. Such a name never leaves a directory.
// Errors: INVALID_ARGUMENT.
absl::Status CheckSnapshotId(std::string_view id);

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_SNAPSHOT_INFO_H_

// What callers learn about a snapshot of a tracked volume.
#ifndef CBT_PROGRAMS_VOLUME_SNAPSHOT_INFO_H_
#define CBT_PROGRAMS_VOLUME_SNAPSHOT_INFO_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
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

// The moment of a snapshot that was deleted: its data is gone, deltas from it are exact as before.
struct SnapshotMark {
  std::string id = {};
  std::optional<int64_t> created_ns = {};  // nanoseconds since 1970; nothing: not known
  uint64_t size = 0;                       // bytes: the capacity of the volume at that time

  friend bool operator==(const SnapshotMark&, const SnapshotMark&) = default;
};

// How many marks a volume keeps. Beyond any of these, the oldest goes first.
struct MarkLimits {
  uint64_t count = 0;
  std::chrono::seconds age{0};  // since the snapshot was taken, where that is known
  uint64_t bytes = 0;           // of the maps from the marks to the next moment each

  friend bool operator==(const MarkLimits&, const MarkLimits&) = default;
};

inline constexpr size_t kMaxSnapshotIdBytes = 200;

// OK if `id` can name a snapshot: 1 to kMaxSnapshotIdBytes letters, digits, '-', '_' and '.' of
// ASCII, of which the first is a letter or a digit. Such a name never leaves a directory.
// Errors: INVALID_ARGUMENT.
absl::Status CheckSnapshotId(std::string_view id);

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_SNAPSHOT_INFO_H_

// The snapshots of a tracked volume, read beside the process that serves the volume.
#ifndef CBT_PROGRAMS_VOLUME_SNAPSHOT_READER_H_
#define CBT_PROGRAMS_VOLUME_SNAPSHOT_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "programs/volume/snapshot_info.h"

namespace cbt::volume {

// A volume as it was when opened: open another reader to see later snapshots. Needs no lock and
// changes nothing, so any number of processes may have readers. Thread-safe.
class SnapshotReader {
 public:
  // Errors: NOT_FOUND without a volume, DATA_LOSS if a part is damaged; file errors.
  // Cost:   O(number of snapshots).
  static absl::StatusOr<std::unique_ptr<SnapshotReader>> Open(const std::string& directory);
  ~SnapshotReader();
  SnapshotReader(const SnapshotReader&) = delete;
  SnapshotReader& operator=(const SnapshotReader&) = delete;

  const std::string& name() const noexcept;
  uint64_t capacity() const noexcept;     // bytes
  uint64_t granularity() const noexcept;  // bytes

  // Oldest first. A snapshot is listed once TakeSnapshot() has returned.
  const std::vector<SnapshotInfo>& snapshots() const noexcept;
  // Errors: NOT_FOUND.
  absl::StatusOr<SnapshotInfo> Find(std::string_view id) const;

  // The marks of snapshots that were deleted, oldest first.
  const std::vector<SnapshotMark>& marks() const noexcept;

  // As the functions of TrackedVolume. A snapshot that was deleted since the reader was opened
  // gives NOT_FOUND where its file is needed; a delta may still succeed.
  absl::StatusOr<std::string> PathOf(std::string_view id) const;
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(std::string_view base,
                                                      std::string_view target) const;
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Allocated(std::string_view id) const;

 private:
  class Core;
  explicit SnapshotReader(std::unique_ptr<Core> core);

  const std::unique_ptr<Core> core_;
};

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_SNAPSHOT_READER_H_

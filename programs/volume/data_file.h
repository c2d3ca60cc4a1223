// The file `data` of an open volume.
#ifndef CBT_PROGRAMS_VOLUME_DATA_FILE_H_
#define CBT_PROGRAMS_VOLUME_DATA_FILE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "base/directory.h"
#include "cbt/extent.h"
#include "programs/volume/tracked_volume.h"

namespace cbt::volume {

// Thread safe once it is open. Ranges are inside the file. What marks changes and preserves
// snapshots is the caller's.
class DataFile {
 public:
  // Errors: NOT_FOUND, file errors.
  absl::Status Open(const Directory& volume);

  // Cuts off what is beyond `capacity`: a resize that was interrupted, where nothing was written.
  // Errors: DATA_LOSS if it is no regular file, or is shorter; file errors.
  absl::Status CutTo(uint64_t capacity) const;
  // Errors: file errors.
  absl::Status Resize(uint64_t bytes) const;

  // Errors: DATA_LOSS where the file is shorter, file errors.
  absl::Status Read(uint64_t offset, std::span<uint8_t> out) const;
  absl::StatusOr<std::vector<VolumeExtent>> Extents(Extent extent, size_t most) const;

  // Each returns 0 or an error number.
  int Write(uint64_t offset, std::span<const uint8_t> bytes) const noexcept;
  // Stays allocated where the file system can do that; otherwise see CannotAllocate().
  int Zero(Extent extent) const noexcept;
  int Punch(Extent extent) const noexcept;
  int WriteZeros(Extent extent) const noexcept;

  // Returns once what was written before is on disk. After the first failure every call fails: the
  // kernel reports a lost write only once.
  absl::Status Sync();

  // The error, named as the file's.
  absl::Status ErrorOf(int error) const;
  int number() const noexcept { return file_.number(); }

 private:
  absl::Status CheckNotLost() const;

  std::optional<Directory> volume_;
  OwnedDescriptor file_;
  std::atomic<int> lost_{0};  // the error number of the first failed sync
};

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_DATA_FILE_H_

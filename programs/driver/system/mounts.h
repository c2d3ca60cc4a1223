// Mounts of this node.
#ifndef CBT_PROGRAMS_DRIVER_SYSTEM_MOUNTS_H_
#define CBT_PROGRAMS_DRIVER_SYSTEM_MOUNTS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::driver {

struct Mount {
  dev_t device;  // of its file system
  std::string point;
};

// All of this namespace; of several at one place, the one that is visible comes last.
absl::StatusOr<std::vector<Mount>> AllMounts();

// The device of the file system that is visible at the mount point `path`; nothing if nothing is
// mounted there. Also if its server is gone.
absl::StatusOr<std::optional<dev_t>> MountedAt(const std::string& path);
// True if something is mounted at `path`, also if its server is gone.
absl::StatusOr<bool> IsMounted(const std::string& path);

// Writes what the file system on `device` holds back to the device. False if it is not mounted
// where this process could reach it.
absl::StatusOr<bool> FlushFileSystemOf(dev_t device);

// Makes `source`, a directory or a file, visible at `target`, which exists.
absl::Status BindMount(const std::string& source, const std::string& target, bool read_only);

// Unmounts whatever is mounted at `path`, also several mounts; OK if nothing is. Waits a moment for
// files that are still open.
// Errors: FAILED_PRECONDITION while files are open; as FileError().
absl::Status Unmount(const std::string& path);

// The same, also while files are open: they stay usable until they are closed.
absl::Status UnmountLazily(const std::string& path);

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_SYSTEM_MOUNTS_H_

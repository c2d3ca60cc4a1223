// Mounts of this node.
#ifndef CBT_DRIVER_SYSTEM_MOUNTS_H_
#define CBT_DRIVER_SYSTEM_MOUNTS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::driver {

// True if something is mounted at `path`, also if its server is gone.
absl::StatusOr<bool> IsMounted(const std::string& path);

// Makes `source`, a folder or a file, visible at `target`, which exists.
absl::Status BindMount(const std::string& source, const std::string& target, bool read_only);

// Unmounts whatever is mounted at `path`, also several mounts; OK if nothing is. Waits a moment for
// files that are still open.
// Errors: FAILED_PRECONDITION while files are open; as FileError().
absl::Status Unmount(const std::string& path);

// The same, also while files are open: they stay usable until they are closed.
absl::Status UnmountLazily(const std::string& path);

}  // namespace cbt::driver

#endif  // CBT_DRIVER_SYSTEM_MOUNTS_H_

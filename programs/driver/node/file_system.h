// File systems on the devices of volumes.
#ifndef CBT_PROGRAMS_DRIVER_NODE_FILE_SYSTEM_H_
#define CBT_PROGRAMS_DRIVER_NODE_FILE_SYSTEM_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::driver {

// OK for a file system that a volume can get; empty is one of them. Errors: INVALID_ARGUMENT.
absl::Status CheckFileSystem(const std::string& name);

// OK if blkid finds the file system on the device, and nothing else. That it finds nothing says
// little: it knows no database's own format, and exits in the same way when the device can't be
// read.
// Errors: FAILED_PRECONDITION, naming what the device holds.
absl::Status CheckHolds(const std::string& device, const std::string& file_system);

// True if a byte of the file is not zero. Cost: none for a file that is all hole; otherwise it is
// read up to the first such byte. Errors: as FileError().
absl::StatusOr<bool> HasData(const std::string& file);

// Destroys what the device holds. Does not discard it first: that would count as a change of all.
absl::Status MakeFileSystemOn(const std::string& device, const std::string& file_system);

// Lets a file system that is not mounted have all of its device, if it is one that can grow then.
absl::Status GrowUnmounted(const std::string& device, const std::string& file_system);
// The same for one that is mounted at `path`. XFS grows only there; ext2 to ext4 need
// CAP_SYS_RESOURCE for it.
absl::Status GrowMounted(const std::string& device, const std::string& path,
                         const std::string& file_system);

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_NODE_FILE_SYSTEM_H_

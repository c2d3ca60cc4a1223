// How a volume becomes a block device of this node: nbdkit serves it, and either the kernel's NBD
// client, or nbdfuse and a loop device, attach it.
#ifndef CBT_DRIVER_NODE_ATTACHMENT_H_
#define CBT_DRIVER_NODE_ATTACHMENT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "driver/state/catalog.h"

namespace cbt::driver {

// Finds what is there by looking at the system, not by remembering: a call finishes what a killed
// driver had begun, and replaces what has died. Calls for one volume must not overlap; otherwise
// thread safe.
class Attachment {
 public:
  // `plugin`: of nbdkit, its name or path. `catalog` must outlive the object.
  Attachment(const Catalog& catalog, std::string plugin)
      : catalog_(catalog), plugin_(std::move(plugin)) {}

  // What the volume can be attached with, for NodeRecord::nbd_device: a free device of the kernel's
  // NBD client, or nothing for nbdfuse.
  // Errors: FAILED_PRECONDITION, naming what this node lacks.
  static absl::StatusOr<std::string> Choose();

  // Returns the path of the device. The volume must not be open in this process.
  absl::StatusOr<std::string> Attach(const std::string& id, const NodeRecord& node) const;
  // The device of an attached volume. Errors: NOT_FOUND.
  absl::StatusOr<std::string> DeviceOf(const std::string& id, const NodeRecord& node) const;
  // OK if it is not attached. What was written to the device is in the volume afterwards.
  absl::Status Detach(const std::string& id, const NodeRecord& node) const;

 private:
  std::string FuseFolder(const std::string& id) const { return catalog_.FolderOf(id) + "/fuse"; }
  std::string FuseFile(const std::string& id) const { return FuseFolder(id) + "/disk"; }
  std::string PidFile(const std::string& id) const { return catalog_.FolderOf(id) + "/nbdkit.pid"; }

  absl::Status Serve(const std::string& id) const;
  absl::Status StopServing(const std::string& id) const;
  absl::Status MountFuse(const std::string& id) const;

  const Catalog& catalog_;
  const std::string plugin_;
};

// Waits until everything written to the device, or into the file system mounted at `path`, is in
// the volume.
absl::Status FlushDevice(const std::string& device);
absl::Status FlushFileSystem(const std::string& path);

}  // namespace cbt::driver

#endif  // CBT_DRIVER_NODE_ATTACHMENT_H_

// How a volume becomes a block device of this node: nbdkit serves it, and either the kernel's NBD
// client, or nbdfuse and a loop device, attach it.
#ifndef CBT_DRIVER_NODE_ATTACHMENT_H_
#define CBT_DRIVER_NODE_ATTACHMENT_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "driver/node/device.h"
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

  // Attaches the volume, or finds it attached. `node.nbd_device` becomes the device of the kernel's
  // NBD client that it got, which need not be the one that was chosen. The volume must not be open
  // in this process. Errors: as DeviceOf(); UNAVAILABLE, FAILED_PRECONDITION.
  absl::StatusOr<AttachedDevice> Attach(const std::string& id, NodeRecord& node) const;
  // The device that is provably this volume's; which one was recorded does not matter.
  // Errors: NOT_FOUND without one, FAILED_PRECONDITION if there are several.
  absl::StatusOr<AttachedDevice> DeviceOf(const std::string& id) const;
  // All of them, without these errors.
  absl::StatusOr<std::vector<AttachedDevice>> DevicesOf(const std::string& id) const;
  // True while a process serves the volume: what a device holds back may still reach it.
  absl::StatusOr<bool> IsServed(const std::string& id) const;
  // The same, and nothing between the device and the server has died.
  absl::StatusOr<bool> IsAlive(const std::string& id) const;
  // OK if it is not attached. What was written to the device is in the volume afterwards. Touches
  // no device that is not provably this volume's.
  absl::Status Detach(const std::string& id) const;

 private:
  std::string FuseFolder(const std::string& id) const { return catalog_.FolderOf(id) + "/fuse"; }
  std::string FuseFile(const std::string& id) const { return FuseFolder(id) + "/disk"; }
  std::string PidFile(const std::string& id) const { return catalog_.FolderOf(id) + "/nbdkit.pid"; }

  std::vector<std::string> Find(const std::string& id) const;
  bool IsOurs(const std::string& id, const std::string& device) const;
  absl::StatusOr<AttachedDevice> Hold(const std::string& id, const std::string& path) const;
  absl::Status DetachDevice(const std::string& id, const std::string& path, bool alive) const;
  absl::Status Serve(const std::string& id) const;
  absl::Status StopServing(const std::string& id) const;
  absl::Status MountFuse(const std::string& id) const;

  const Catalog& catalog_;
  const std::string plugin_;
};

}  // namespace cbt::driver

#endif  // CBT_DRIVER_NODE_ATTACHMENT_H_

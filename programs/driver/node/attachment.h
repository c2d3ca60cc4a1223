// How a volume becomes a block device of this node: the volume host serves it, and either a loop
// device above the file that the host shows, or the kernel's NBD client, attach it.
#ifndef CBT_PROGRAMS_DRIVER_NODE_ATTACHMENT_H_
#define CBT_PROGRAMS_DRIVER_NODE_ATTACHMENT_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/driver/host/host_client.h"
#include "programs/driver/node/device.h"
#include "programs/driver/state/record.h"
#include "programs/driver/state/volume_paths.h"

namespace cbt::driver {

// What volumes are attached with.
enum class DeviceKind {
  kLoop,  // a loop device above the host's file: outlives servers, host and driver
  kNbd,   // the kernel's NBD client: fails when the volume's server ends
};

// Finds what is there by looking at the system, not by remembering: a call finishes what a killed
// driver had begun, and replaces what has died. Calls for one volume must not overlap; otherwise
// thread safe.
class Attachment {
 public:
  // `host` must outlive the object.
  Attachment(const VolumePaths& paths, HostClient& host) : paths_(paths), host_(host) {}

  // What the volume can be attached with, for NodeRecord::nbd_device: nothing for a file and a loop
  // device, or a free device of the kernel's NBD client.
  // Errors: FAILED_PRECONDITION, naming what this node lacks.
  static absl::StatusOr<std::string> Choose(DeviceKind kind);

  // Attaches the volume, or finds it attached. `node.nbd_device` becomes the device of the kernel's
  // NBD client that it got, which need not be the one that was chosen. The volume must not be open
  // in this process. Errors: as DeviceOf(); UNAVAILABLE, FAILED_PRECONDITION.
  absl::StatusOr<AttachedDevice> Attach(const std::string& id, NodeRecord& node) const;
  // The device that is provably this volume's; which one was recorded does not matter.
  // Errors: NOT_FOUND without one, FAILED_PRECONDITION if there are several.
  absl::StatusOr<AttachedDevice> DeviceOf(const std::string& id) const;
  // The same for a volume that gets a new user: the device stays until Detach().
  absl::StatusOr<AttachedDevice> DeviceToUse(const std::string& id) const;
  // All of them, without these errors.
  absl::StatusOr<std::vector<AttachedDevice>> DevicesOf(const std::string& id) const;
  // True while a process serves the volume: what a device holds back may still reach it.
  absl::StatusOr<bool> IsServed(const std::string& id) const;
  // True unless its device fails: its file waits for a server, a device of NBD needs one.
  // Errors: UNAVAILABLE as long as that is not known.
  absl::StatusOr<bool> IsAlive(const std::string& id, const NodeRecord& node) const;
  // OK unless what is written to the volume's file would wait for a server that can't be started.
  // Errors: UNAVAILABLE, with the reason.
  absl::Status CheckServer(const std::string& id, const NodeRecord& node) const;
  // False if nothing of it is there, as after a restart of the node.
  absl::StatusOr<bool> IsAttached(const std::string& id) const;
  // Serves a volume again that is attached. Nothing else is changed: what has ended stays so until
  // the volume is staged again. Errors: DATA_LOSS if its device has.
  absl::Status ServeAgain(const std::string& id, const NodeRecord& node) const;
  // Lets the volume's device have the `capacity` bytes that the volume has.
  // Errors: as DeviceOf(); FAILED_PRECONDITION if its device can't grow.
  absl::Status Grow(const std::string& id, uint64_t capacity) const;
  // OK if it is not attached. What was written to the device is in the volume afterwards. Touches
  // no device that is not provably this volume's.
  absl::Status Detach(const std::string& id, const NodeRecord& node) const;

 private:
  bool IsView(const std::string& id) const;
  // After a restart of the server or of the host that is under way. Of a volume whose file is
  // mounted.
  std::optional<VolumeHealth> SettledHealth(const std::string& id, const NodeRecord& node) const;
  absl::StatusOr<AttachedDevice> AttachFile(const std::string& id, const std::string& file,
                                            bool read_only) const;
  std::vector<std::string> Find(const std::string& id) const;
  bool IsOurs(const std::string& id, const std::string& device) const;
  // Proven to be the volume's while it is held open.
  absl::StatusOr<AttachedDevice> Hold(const std::string& id, const std::string& path) const;
  absl::StatusOr<AttachedDevice> HoldToUse(const std::string& id, const std::string& path) const;
  absl::Status DetachDevice(const std::string& id, const std::string& path, bool alive) const;

  const VolumePaths paths_;
  HostClient& host_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_NODE_ATTACHMENT_H_

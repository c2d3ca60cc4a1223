// What the Node service does, without gRPC: volumes become devices and mounts.
#ifndef CBT_PROGRAMS_DRIVER_NODE_NODE_H_
#define CBT_PROGRAMS_DRIVER_NODE_NODE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/driver/node/attachment.h"
#include "programs/driver/state/store.h"

namespace cbt::driver {

// How a client wants to use a volume.
struct Usage {
  bool block = false;
  std::string file_system = {};  // empty: ext4
  std::vector<std::string> mount_options = {};
  bool read_only = false;      // by all who use it
  bool single_target = false;  // SINGLE_NODE_SINGLE_WRITER
  bool many_nodes = false;     // MULTI_NODE_READER_ONLY: every target is read-only
};

struct VolumeStats {
  uint64_t total_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t available_bytes = 0;
  // Of file systems.
  bool has_inodes = false;
  uint64_t total_inodes = 0;
  uint64_t used_inodes = 0;
  uint64_t available_inodes = 0;
};

struct NodeOptions {
  DeviceKind device = DeviceKind::kLoop;
  std::vector<std::string> volume_host = {};  // see HostClientOptions::program
  // See HostClientOptions::changed.
  std::function<void(const std::string& id, const VolumeHealth& health)> changed;
};

// Thread safe. Calls that meet another one for the same volume fail with ABORTED. All can be
// repeated after any error, and after the driver was killed; paths are absolute.
class Node {
 public:
  // `store` must outlive the object.
  Node(Store& store, NodeOptions options);
  // Connects to the volume host, and has it serve what is attached. Call once, before all others.
  void Start();
  ~Node() { ending_ = true; }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Errors of all: NOT_FOUND without the volume; INVALID_ARGUMENT for a path.

  // Attaches the volume, and unless it is used as a device, mounts its file system at `staging`. A
  // volume that was never written to gets one.
  // Errors: FAILED_PRECONDITION if it is staged elsewhere, holds something else than that file
  //         system, or the node lacks what that needs;
  //         ALREADY_EXISTS if it is staged in another way.
  absl::Status Stage(const std::string& id, const std::string& staging, const Usage& usage);
  // Errors: FAILED_PRECONDITION while it is published or in use.
  absl::Status Unstage(const std::string& id, const std::string& staging);

  // Makes the staged volume visible at `target`.
  // Errors: FAILED_PRECONDITION if it is not staged there, or for a second target with
  //         single_target; ALREADY_EXISTS if it is published there in another way.
  absl::Status Publish(const std::string& id, const std::string& staging, const std::string& target,
                       const Usage& usage, bool read_only);
  // OK if it is not published there.
  absl::Status Unpublish(const std::string& id, const std::string& target);

  // `path`: where it is staged or published, or another one that leads to its device or into its
  // file system. Errors: NOT_FOUND if it is not there.
  absl::StatusOr<VolumeStats> Stats(const std::string& id, const std::string& path) const;
  // Lets the file system have all of the volume. Returns the volume's capacity.
  absl::StatusOr<uint64_t> Expand(const std::string& id, const std::string& path);

  // Everything written to an attached volume is in it afterwards.
  absl::Status Flush(const Volume& volume) const;

  // Errors: NOT_FOUND.
  absl::Status CheckVolume(const std::string& id) const;
  const HostClient& host() const noexcept { return host_; }

 private:
  struct Locked;
  absl::StatusOr<Locked> Lock(const std::string& id);
  void ServeAttached();
  absl::Status ServeAgain(const std::string& id);
  absl::Status DropDeadMounts(const std::string& id, const NodeRecord& node) const;
  absl::Status MountFileSystem(const Volume& volume, const NodeRecord& node,
                               const AttachedDevice& device) const;
  absl::Status RecordFailedFormat(const std::string& id, const AttachedDevice& device) const;
  absl::Status ProvideFileSystem(const Volume& volume, const NodeRecord& node,
                                 const AttachedDevice& device) const;

  Store& store_;
  const NodeOptions options_;
  std::atomic<bool> ending_ = false;
  HostClient host_;
  const Attachment attachment_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_NODE_NODE_H_

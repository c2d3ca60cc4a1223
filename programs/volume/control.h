// Control of a volume that another process serves, over a Unix socket: one JSON object per line in
// each direction, docs/reference/volume-control.md.
#ifndef CBT_PROGRAMS_VOLUME_CONTROL_H_
#define CBT_PROGRAMS_VOLUME_CONTROL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/volume/snapshot_info.h"
#include "programs/volume/tracked_volume.h"

namespace cbt::volume {

struct ControlServerOptions {
  std::string path = {};  // of the socket, at most 107 bytes
  unsigned mode = 0660;   // of the socket's file
  size_t max_clients = 16;
  // A client that is silent for so long is disconnected.
  unsigned idle_seconds = 300;
  // Not where something above the volume remembers what it holds without being connected to it, as
  // a mounted file system does.
  bool allow_revert = true;
};

// Serves a volume's control socket on threads of its own. A client that vanishes, sends rubbish or
// reads nothing harms neither the volume nor other clients; what it asked for is done nevertheless.
class ControlServer {
 public:
  // `volume` must outlive the server. A socket that a killed process left at the path is replaced;
  // nothing else is.
  // Errors: INVALID_ARGUMENT for the path, ALREADY_EXISTS if a server listens there or something
  //         other than a socket has the name, file errors.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(TrackedVolume& volume,
                                                              const ControlServerOptions& options);
  // Waits for requests that run, disconnects everyone, and removes the socket.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

 private:
  class Core;
  explicit ControlServer(std::unique_ptr<Core> core);

  const std::unique_ptr<Core> core_;
};

// A connection to a ControlServer. For one thread at a time. After UNAVAILABLE or
// DEADLINE_EXCEEDED it is not known whether the request was carried out: every request can be
// repeated, on a new connection.
//
// Errors of all requests: those of the function of TrackedVolume with the same name, with their
// codes and messages; UNAVAILABLE if the connection is lost, DEADLINE_EXCEEDED, INTERNAL if the
// server answers something else than is documented.
class ControlClient {
 public:
  // Errors: UNAVAILABLE if no server listens at `path`, NOT_FOUND if it does not exist,
  //         PERMISSION_DENIED, INVALID_ARGUMENT for the path. `timeout_seconds` (> 0) bounds each
  //         request.
  static absl::StatusOr<std::unique_ptr<ControlClient>> Connect(const std::string& path,
                                                                double timeout_seconds = 60);
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  absl::StatusOr<SnapshotInfo> TakeSnapshot(const std::string& id);
  absl::Status DeleteSnapshot(const std::string& id,
                              const std::optional<MarkLimits>& marks = std::nullopt);
  // See TrackedVolume::HoldWrites(): until the client is destroyed, at most for `seconds` (60). After
  // that, each request fails with UNAVAILABLE. INVALID_ARGUMENT from a server of an earlier version.
  absl::Status HoldWrites(unsigned seconds);
  // Oldest first. INVALID_ARGUMENT from a server of an earlier version, which has none.
  absl::StatusOr<std::vector<SnapshotMark>> ListMarks();
  // All of them, in as many requests as that takes; oldest first.
  absl::StatusOr<std::vector<SnapshotInfo>> ListSnapshots();
  // Errors: NOT_FOUND.
  absl::StatusOr<SnapshotInfo> FindSnapshot(std::string_view id);
  absl::Status Resize(uint64_t capacity);
  absl::Status Revert(const std::string& id);
  absl::StatusOr<VolumeStatus> Status();

 private:
  class Core;
  explicit ControlClient(std::unique_ptr<Core> core);

  const std::unique_ptr<Core> core_;
};

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_CONTROL_H_

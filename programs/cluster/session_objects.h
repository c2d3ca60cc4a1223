// The objects of the proposal's first revision, in which a session opens snapshots for a time.
//
// The group, the names and the fields are those of the definitions in the proposal's text; where
// its prose differs, see docs/guides/session-manager.md.
#ifndef CBT_PROGRAMS_CLUSTER_SESSION_OBJECTS_H_
#define CBT_PROGRAMS_CLUSTER_SESSION_OBJECTS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/kube/object.h"

namespace cbt::kube::cluster {

inline constexpr Resource kSnapshotSessionRequests{
    "cbt.storage.k8s.io", "v1alpha1", "snapshotsessionrequests", "SnapshotSessionRequest", true};
inline constexpr Resource kSnapshotSessionData{"cbt.storage.k8s.io", "v1alpha1",
                                               "snapshotsessiondata", "SnapshotSessionData", true};
inline constexpr Resource kSnapshotServicesConfigurations{"cbt.storage.k8s.io", "v1alpha1",
                                                          "snapshotservicesconfigurations",
                                                          "SnapshotServicesConfiguration", false};

// The state of a request; the last two are final.
inline constexpr std::string_view kPending = "Pending";
inline constexpr std::string_view kReady = "Ready";
inline constexpr std::string_view kFailed = "Failed";

// Ties a configuration to its driver.
inline constexpr std::string_view kDriverLabel = "cbt.storage.k8s.io/driver";
// Tie a session's data to its request: the uid, and the name.
inline constexpr std::string_view kRequestLabel = "cbt.storage.k8s.io/session-request";
inline constexpr std::string_view kRequestNameAnnotation =
    "cbt.storage.k8s.io/session-request-name";

// What a backup application creates, and where it finds the session.
struct SnapshotSessionRequest {
  static constexpr Resource kResource = kSnapshotSessionRequests;

  ObjectMeta meta = {};
  std::vector<std::string> snapshots = {};  // names of VolumeSnapshots in its namespace

  struct Status {
    std::string state = {};
    std::string error = {};
    std::optional<Time> expires = {};
    // Only of a session that is Ready.
    std::string token = {};  // in JSON as base64
    std::string url = {};    // "host:port"
    std::string ca = {};     // PEM
  };
  Status status = {};  // its state is empty before a manager has seen the request

  static absl::StatusOr<SnapshotSessionRequest> Decode(const Object& object);
  // Writes the status to an object that was read, and leaves all else as it is.
  void WriteStatus(Object& object) const;
};

// What the driver's sidecar may answer. Its name is the session's token; it is in the driver's
// namespace.
struct SnapshotSessionData {
  static constexpr Resource kResource = kSnapshotSessionData;

  ObjectMeta meta = {};
  std::string snapshot_namespace = {};
  std::vector<std::string> snapshots = {};
  Time expires = {};

  static absl::StatusOr<SnapshotSessionData> Decode(const Object& object);
  Object Encode() const;
};

// Where the service of a driver is, and where the data of its sessions goes.
struct SnapshotServicesConfiguration {
  static constexpr Resource kResource = kSnapshotServicesConfigurations;

  ObjectMeta meta = {};
  std::string address = {};           // "host:port"
  std::string ca = {};                // PEM
  std::string driver_namespace = {};  // our field: the proposal names none

  static absl::StatusOr<SnapshotServicesConfiguration> Decode(const Object& object);
  Object Encode() const;
};

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_SESSION_OBJECTS_H_

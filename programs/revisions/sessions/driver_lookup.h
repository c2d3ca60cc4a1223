// Which driver has the snapshots of a session, and where its service is.
#ifndef CBT_PROGRAMS_REVISIONS_SESSIONS_DRIVER_LOOKUP_H_
#define CBT_PROGRAMS_REVISIONS_SESSIONS_DRIVER_LOOKUP_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "programs/cluster/session_objects.h"

namespace cbt::kube::sessions {

// What was found, or why it can't be: a refusal is final, unlike an error of the API server.
template <typename Value>
struct Finding {
  Value value = {};
  std::string refusal = {};  // for the user; empty: there is a value
};

// The driver of all these VolumeSnapshots. Each must exist, and be bound to its content in both
// directions: namespace, name and uid. Whether it is ready is for the sidecar to see, each time.
// Errors: those of the API server.
absl::StatusOr<Finding<std::string>> FindDriver(Client& client, const std::string& name_space,
                                                const std::vector<std::string>& snapshots);

// The one configuration that has the driver's label. Errors: those of the API server.
absl::StatusOr<Finding<cluster::SnapshotServicesConfiguration>> FindConfiguration(
    Client& client, const std::string& driver);

}  // namespace cbt::kube::sessions

#endif  // CBT_PROGRAMS_REVISIONS_SESSIONS_DRIVER_LOOKUP_H_

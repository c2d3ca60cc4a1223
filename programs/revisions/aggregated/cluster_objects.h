// The objects of the cluster that lead from a snapshot's name to the service of its driver.
#ifndef CBT_PROGRAMS_REVISIONS_AGGREGATED_CLUSTER_OBJECTS_H_
#define CBT_PROGRAMS_REVISIONS_AGGREGATED_CLUSTER_OBJECTS_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "cbt/kube/typed_objects.h"
#include "cbt/kube/watch.h"
#include "programs/cluster/binding.h"
#include "programs/cluster/secret_template.h"
#include "programs/revisions/aggregated/api/driver_discovery.h"

namespace cbt::kube::aggregated {

// The snapshots of a question, in the terms of their driver.
struct SnapshotPair {
  std::string driver;
  std::optional<cluster::BoundSnapshot> base;
  cluster::BoundSnapshot target;
  // The uids of the objects: another snapshot under the same name has others.
  std::string identity;
};

// Objects as watches have last seen them; what they do not have is asked of the API server before a
// no is said. Thread safe; functions may wait for the API server, so they must not run in a
// callback of the client.
//
// Errors of all: NOT_FOUND for an object that does not exist, with its name; FAILED_PRECONDITION
// for objects that do not fit each other; UNAVAILABLE if that can't be known now, or if a snapshot
// is not ready.
class ClusterObjects {
 public:
  // Starts the watches; `client` must outlive the object. `discoveries`: further options of the
  // watch of DriverDiscovery objects. Errors: those of ObjectCache::Create().
  static absl::StatusOr<std::unique_ptr<ClusterObjects>> Create(Client& client,
                                                                std::chrono::milliseconds timeout,
                                                                CacheOptions discoveries);

  // The snapshots of these names. Each is ready, and bound to its content in both directions; both
  // are of one driver and, as far as is known, of one volume, and the base is not the newer one.
  absl::StatusOr<SnapshotPair> FindSnapshots(const std::string& name_space,
                                             const std::optional<std::string>& base,
                                             const std::string& target) const;
  // The only one that names the driver.
  absl::StatusOr<DriverDiscovery> FindDriver(const std::string& driver) const;
  // The secret that the target's class names; nothing if the class names none, or if there is no
  // class.
  absl::StatusOr<std::optional<cluster::SecretName>> FindSecret(const SnapshotPair& pair) const;

  // All watches are current.
  bool current() const;
  // The DriverDiscovery of this name as the watch has it; null if it does not exist.
  ObjectPtr FindDiscovery(std::string_view name) const { return discoveries_->Find("", name); }

 private:
  ClusterObjects(Client& client, std::chrono::milliseconds timeout)
      : client_(client), timeout_(timeout) {}

  template <typename T>
  absl::StatusOr<T> Find(const ObjectCache& cache, const std::string& name_space,
                         const std::string& name) const;
  struct Found {
    cluster::BoundSnapshot bound;
    std::string driver;
    std::string identity;
  };
  absl::StatusOr<Found> FindSnapshot(const std::string& name_space, const std::string& name) const;
  absl::StatusOr<std::optional<VolumeSnapshotClass>> FindClass(const SnapshotPair& pair) const;

  Client& client_;
  const std::chrono::milliseconds timeout_;
  std::unique_ptr<ObjectCache> snapshots_;
  std::unique_ptr<ObjectCache> contents_;
  std::unique_ptr<ObjectCache> classes_;
  std::unique_ptr<ObjectCache> discoveries_;
};

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_CLUSTER_OBJECTS_H_

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
#include "ops/event_log.h"
#include "programs/cluster/fresh_cache.h"
#include "programs/cluster/live_objects.h"
#include "programs/cluster/secret_template.h"
#include "programs/cluster/watched_objects.h"
#include "programs/revisions/aggregated/api/driver_discovery.h"

namespace cbt::kube::aggregated {

// The snapshots of a question, in the terms of their driver.
struct SnapshotPair {
  std::optional<BoundSnapshot> base = {};
  BoundSnapshot target = {};
};

// Objects as watches have last seen them; what they do not have is asked of the API server before a
// no is said. Thread safe; functions may wait for the API server, so they must not run in a
// callback of a client.
//
// Errors of all: NOT_FOUND for an object that does not exist, with its name; FAILED_PRECONDITION
// for objects that do not fit each other; UNAVAILABLE if that can't be known now, or if a snapshot
// is not ready or not bound.
class ClusterObjects {
 public:
  // Starts the watches with `watches`; `callers` asks what is asked for callers. The first must
  // live until Stop(), the object until the end of the second. `discoveries`: further options of
  // the watch of DriverDiscovery objects. Errors: those of ObjectCache::Create().
  static absl::StatusOr<std::unique_ptr<ClusterObjects>> Create(Client& watches, Client& callers,
                                                                std::chrono::milliseconds timeout,
                                                                CacheOptions discoveries,
                                                                ops::EventLog& log);

  // Ends the watches; no other function may be called any more. Not in a callback of a client.
  void Stop();

  // The snapshots of these names. Each is ready, and bound to its content in both directions; both
  // are of one driver and, as far as is known, of one volume, and the base is not the newer one.
  absl::StatusOr<SnapshotPair> FindSnapshots(const std::string& name_space,
                                             const std::optional<std::string>& base,
                                             const std::string& target) const;
  // The only one that names the driver.
  absl::StatusOr<DriverDiscovery> FindDriver(const std::string& driver) const;
  // The secret that the snapshot's class names; nothing if the class names none, or if there is no
  // class.
  absl::StatusOr<std::optional<cluster::SecretName>> FindSecret(
      const BoundSnapshot& snapshot) const;

  // The watch of DriverDiscovery objects is current. The other objects are asked of the API server
  // while their watches are not: tenants, who may write more than a cache keeps, do not decide
  // whether this server is ready.
  bool current() const { return discoveries_->current(); }
  // The DriverDiscovery of this name as the watch has it; null if it does not exist.
  ObjectPtr FindDiscovery(std::string_view name) const { return discoveries_->LastSeen("", name); }

 private:
  ClusterObjects(Client& callers, std::chrono::milliseconds timeout, ops::EventLog& log)
      : live_(std::make_unique<cluster::LiveObjects>(callers, timeout, log)) {}

  // Their answers do not change the object.
  const std::unique_ptr<cluster::LiveObjects> live_;
  std::unique_ptr<cluster::WatchedObjects> watched_;
  std::unique_ptr<cluster::FreshCache> discoveries_;
};

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_CLUSTER_OBJECTS_H_

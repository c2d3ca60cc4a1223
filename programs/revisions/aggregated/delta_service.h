// Answers a VolumeSnapshotDelta.
#ifndef CBT_PROGRAMS_REVISIONS_AGGREGATED_DELTA_SERVICE_H_
#define CBT_PROGRAMS_REVISIONS_AGGREGATED_DELTA_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/kube/typed_objects.h"
#include "ops/event_log.h"
#include "programs/revisions/aggregated/authorizer.h"
#include "programs/revisions/aggregated/cluster_objects.h"
#include "programs/revisions/aggregated/options.h"
#include "programs/revisions/aggregated/upstream.h"
#include "programs/revisions/aggregated/volume_snapshot_delta.h"

namespace cbt::kube::aggregated {

// For metrics. Thread safe.
struct DeltaCounters {
  std::atomic<uint64_t> completed = 0;  // pages by state
  std::atomic<uint64_t> continued = 0;
  std::atomic<uint64_t> failed = 0;
  std::atomic<uint64_t> retries = 0;  // of a driver's service
};

// What can't be asked is an error; what was asked of the driver and failed is an object in state
// Failed. A driver whose service does not answer takes up half of the threads at most: the pages of
// others go on. Thread safe; waits for the API server and for the driver's service.
class DeltaService {
 public:
  // All must outlive the object.
  DeltaService(const Options& options, const ClusterObjects& objects, Authorizer& authorizer,
               Upstream& upstream, ops::EventLog& log)
      : options_(options),
        objects_(objects),
        authorizer_(authorizer),
        upstream_(upstream),
        log_(log) {}

  // The object with its status, as JSON. `user`: who asks, and may create the object; whether it
  // may read a secret that it names is asked here.
  // Errors: those of ClusterObjects; PERMISSION_DENIED for the secret; ABORTED if the data is not
  //         that of the request's annotation any more; RESOURCE_EXHAUSTED if too many ask for
  //         pages of the driver.
  absl::StatusOr<std::string> Answer(const VolumeSnapshotDelta& request, const UserInfo& user);
  const DeltaCounters& counters() const noexcept { return counters_; }

 private:
  absl::StatusOr<std::optional<cluster::SecretName>> SecretFor(const VolumeSnapshotDelta& request,
                                                               const UserInfo& user,
                                                               const SnapshotPair& pair);
  absl::StatusOr<std::string> ReadPage(const VolumeSnapshotDelta& request, DriverDiscovery service,
                                       const SnapshotPair& pair, const DeltaPageRequest& page);
  bool Enter(const std::string& driver);
  void Leave(const std::string& driver);

  const Options& options_;
  const ClusterObjects& objects_;
  Authorizer& authorizer_;
  Upstream& upstream_;
  ops::EventLog& log_;
  DeltaCounters counters_;
  std::mutex mutex_;
  std::map<std::string, size_t> asked_;  // pages under way, by driver
};

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_DELTA_SERVICE_H_

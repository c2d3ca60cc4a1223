// Answers a VolumeSnapshotDelta.
#ifndef CBT_PROGRAMS_REVISIONS_AGGREGATED_DELTA_SERVICE_H_
#define CBT_PROGRAMS_REVISIONS_AGGREGATED_DELTA_SERVICE_H_

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/kube/typed_objects.h"
#include "ops/event_log.h"
#include "ops/metric_set.h"
#include "programs/cluster/access_reviewer.h"
#include "programs/revisions/aggregated/cluster_objects.h"
#include "programs/revisions/aggregated/options.h"
#include "programs/revisions/aggregated/upstream.h"
#include "programs/revisions/aggregated/volume_snapshot_delta.h"

namespace cbt::kube::aggregated {

// For metrics. Thread safe.
struct DeltaCounters {
  explicit DeltaCounters(ops::MetricSet& metrics) : set(metrics) {}

  ops::MetricSet& set;
  ops::MetricSet::Counter completed = Of("Completed");
  ops::MetricSet::Counter continued = Of("Continue");
  ops::MetricSet::Counter failed = Of("Failed");
  ops::MetricSet::Counter retries = set.AddCounter(
      "cbt_aggregated_page_retries_total", "Attempts at a driver's service after the first");

 private:
  ops::MetricSet::Counter Of(const char* state) {
    return set.AddCounter("cbt_aggregated_pages_total", "Pages by state", "state", state);
  }
};

// What can't be asked is an error; what was asked of the driver and failed is an object in state
// Failed. A driver whose service does not answer takes up half of the threads at most: the pages of
// others go on. Thread safe; waits for the API server and for the driver's service.
class DeltaService {
 public:
  // All must outlive the object.
  DeltaService(const Options& options, const ClusterObjects& objects,
               cluster::AccessReviewer& reviewer, Upstream& upstream, ops::MetricSet& metrics,
               ops::EventLog& log)
      : options_(options),
        objects_(objects),
        reviewer_(reviewer),
        upstream_(upstream),
        log_(log),
        counters_(metrics) {}

  // The object with its status, as JSON. `user`: who asks, and may create the object; whether it
  // may read a secret that it names is asked here.
  // Errors: those of ClusterObjects; PERMISSION_DENIED for the secret; ABORTED if the data is not
  //         that of the request's annotation any more; RESOURCE_EXHAUSTED if too many ask for
  //         pages of the driver.
  absl::StatusOr<std::string> Answer(const VolumeSnapshotDelta& request, const UserInfo& user);

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
  cluster::AccessReviewer& reviewer_;
  Upstream& upstream_;
  ops::EventLog& log_;
  DeltaCounters counters_;
  std::mutex mutex_;
  std::map<std::string, size_t> asked_;  // pages under way, by driver
};

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_DELTA_SERVICE_H_

// What the sidecar has asked of the driver, for its metrics (C39).
#ifndef CBT_PROGRAMS_COSI_SIDECAR_COUNTERS_H_
#define CBT_PROGRAMS_COSI_SIDECAR_COUNTERS_H_

#include <string_view>

#include "absl/status/status.h"
#include "ops/metric_set.h"

namespace cbt::kube::cosi {

// Since the start of the process. Thread safe.
class SidecarCounters {
 public:
  explicit SidecarCounters(ops::MetricSet& metrics) : set_(metrics) {}

  void Count(std::string_view method, absl::StatusCode code) {
    const bool ok = code == absl::StatusCode::kOk;
    if (method == "ProvisionerCreateBucket") ++(ok ? created_ : create_failed_);
    if (method == "ProvisionerDeleteBucket") ++(ok ? deleted_ : delete_failed_);
    if (method == "ProvisionerGrantBucketAccess") ++(ok ? granted_ : grant_failed_);
    if (method == "ProvisionerRevokeBucketAccess") ++(ok ? revoked_ : revoke_failed_);
  }

 private:
  ops::MetricSet::Counter Done(const char* operation) {
    return set_.AddCounter("cbt_cosi_calls_total", "Calls of the driver that succeeded",
                           "operation", operation);
  }
  ops::MetricSet::Counter Failed(const char* operation) {
    return set_.AddCounter("cbt_cosi_failed_calls_total", "Calls of the driver that failed",
                           "operation", operation);
  }

  ops::MetricSet& set_;
  ops::MetricSet::Counter created_ = Done("create");
  ops::MetricSet::Counter deleted_ = Done("delete");
  ops::MetricSet::Counter granted_ = Done("grant");
  ops::MetricSet::Counter revoked_ = Done("revoke");
  ops::MetricSet::Counter create_failed_ = Failed("create");
  ops::MetricSet::Counter delete_failed_ = Failed("delete");
  ops::MetricSet::Counter grant_failed_ = Failed("grant");
  ops::MetricSet::Counter revoke_failed_ = Failed("revoke");
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_SIDECAR_COUNTERS_H_

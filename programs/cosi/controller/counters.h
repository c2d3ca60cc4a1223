// What the controller has done, for its metrics (C39).
#ifndef CBT_PROGRAMS_COSI_CONTROLLER_COUNTERS_H_
#define CBT_PROGRAMS_COSI_CONTROLLER_COUNTERS_H_

#include "ops/metric_set.h"

namespace cbt::kube::cosi {

// Since the start of the process. Thread safe.
struct ControllerCounters {
  explicit ControllerCounters(ops::MetricSet& metrics) : set(metrics) {}

  ops::MetricSet& set;
  ops::MetricSet::Counter buckets_bound = Bound("BucketRequest");
  ops::MetricSet::Counter accesses_bound = Bound("BucketAccessRequest");
  ops::MetricSet::Counter buckets_released = Released("BucketRequest");
  ops::MetricSet::Counter accesses_released = Released("BucketAccessRequest");
  ops::MetricSet::Counter retries = set.AddCounter(
      "cbt_cosi_retries_total", "Objects that had to wait, or that the API server did not take");
  ops::MetricSet::Counter stripped =
      set.AddCounter("cbt_cosi_stripped_accesses_total", "Accesses that a forced deletion removed");
  ops::MetricSet::Counter swept =
      set.AddCounter("cbt_cosi_swept_pod_finalizers_total", "Finalizers of Pods that were gone");

 private:
  ops::MetricSet::Counter Bound(const char* kind) {
    return set.AddCounter("cbt_cosi_bound_total", "Requests that got their object", "kind", kind);
  }
  ops::MetricSet::Counter Released(const char* kind) {
    return set.AddCounter("cbt_cosi_released_total", "Requests that were deleted", "kind", kind);
  }
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_CONTROLLER_COUNTERS_H_

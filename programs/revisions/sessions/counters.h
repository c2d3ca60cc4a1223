// What the session manager has done, for its metrics.
#ifndef CBT_PROGRAMS_REVISIONS_SESSIONS_COUNTERS_H_
#define CBT_PROGRAMS_REVISIONS_SESSIONS_COUNTERS_H_

#include "ops/metric_set.h"

namespace cbt::kube::sessions {

// Since the start of the process. Thread safe.
struct Counters {
  explicit Counters(ops::MetricSet& metrics) : set(metrics) {}

  ops::MetricSet& set;
  ops::MetricSet::Counter reviews_allowed = Review("allowed");
  ops::MetricSet::Counter reviews_denied = Review("denied");
  // Not understood, or access could not be checked.
  ops::MetricSet::Counter reviews_failed = Review("failed");
  ops::MetricSet::Counter sessions_ready = Session("Ready");
  ops::MetricSet::Counter sessions_failed = Session("Failed");
  ops::MetricSet::Counter retries =
      set.AddCounter("cbt_session_retries_total", "Steps that the API server did not take");
  ops::MetricSet::Counter requests_removed = Removed("request");
  ops::MetricSet::Counter data_removed = Removed("data");

 private:
  ops::MetricSet::Counter Review(const char* answer) {
    return set.AddCounter("cbt_session_reviews_total", "Reviews by answer", "answer", answer);
  }
  ops::MetricSet::Counter Session(const char* state) {
    return set.AddCounter("cbt_sessions_total", "Requests that reached a final state", "state",
                          state);
  }
  ops::MetricSet::Counter Removed(const char* kind) {
    return set.AddCounter("cbt_session_removed_total", "Objects that were removed", "kind", kind);
  }
};

}  // namespace cbt::kube::sessions

#endif  // CBT_PROGRAMS_REVISIONS_SESSIONS_COUNTERS_H_

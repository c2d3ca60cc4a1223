// What each part of the sidecar works with.
#ifndef CBT_PROGRAMS_COSI_SIDECAR_PART_H_
#define CBT_PROGRAMS_COSI_SIDECAR_PART_H_

#include <chrono>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "cbt/kube/client.h"
#include "ops/event_log.h"
#include "programs/cluster/events.h"
#include "programs/cosi/api/change.h"
#include "programs/cosi/api/names.h"
#include "programs/cosi/api/objects.h"
#include "programs/cosi/sidecar/counters.h"
#include "programs/cosi/sidecar/driver_calls.h"

namespace cbt::kube::cosi {

using cluster::Events;
using cluster::Subject;
using cluster::SubjectOf;

// Between two calls of a kind that will not succeed by itself.
inline constexpr std::chrono::minutes kSeldom{5};

// All outlive the parts.
struct SidecarTools {
  Client& client;
  DriverCalls& driver;
  Events& events;
  SidecarCounters& counters;
  ops::EventLog& log;
  const std::string& driver_name;
  const std::string& name_space;  // of Secrets
  // The key comes again after a time.
  std::function<void(const std::string& key, std::chrono::milliseconds)> wake_later;
};

// OK also if it is gone already.
inline absl::Status FineIfGone(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

// Without a uid, as long as no request is bound: an Event about it would not be shown.
inline Subject SubjectOf(const Resource& resource, const Reference& request) {
  return {.resource = resource,
          .name_space = request.name_space,
          .name = request.name,
          .uid = request.uid};
}

// A call of the driver has failed: says so with its reason, and decides when it is repeated. Users
// may not look at Buckets and BucketAccesses, so their request says it too; without the driver's
// words, which may quote the backend. Returns what a worker returns.
inline absl::Status DriverFailed(const SidecarTools& tools, const std::string& key,
                                 const Subject& subject, const Subject& request, const char* reason,
                                 const absl::Status& error) {
  const std::string code(absl::StatusCodeToString(error.code()));
  tools.events.Warn(subject, reason, code + ": " + std::string(error.message()));
  if (!request.uid.empty()) {
    tools.events.Warn(request, reason,
                      code + ": the driver's words are in an Event of " + key +
                          ", which an administrator can read");
  }
  if (IsWorthRetry(error)) return error;
  tools.log.Failed("driver refuses", error, {{.key = "object", .value = key}});
  tools.wake_later(key, kSeldom);
  return absl::OkStatus();
}

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_SIDECAR_PART_H_

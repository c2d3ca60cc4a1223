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

// A call of the driver has failed: says so with its reason, and decides when it is repeated.
// Returns what a worker returns.
inline absl::Status DriverFailed(const SidecarTools& tools, const std::string& key,
                                 const Subject& subject, const char* reason,
                                 const absl::Status& error) {
  tools.events.Warn(
      subject, reason,
      std::string(absl::StatusCodeToString(error.code())) + ": " + std::string(error.message()));
  if (IsWorthRetry(error)) return error;
  tools.log.Failed("driver refuses", error, {{.key = "object", .value = key}});
  tools.wake_later(key, kSeldom);
  return absl::OkStatus();
}

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_SIDECAR_PART_H_

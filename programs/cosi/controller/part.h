// What each part of the controller works with.
#ifndef CBT_PROGRAMS_COSI_CONTROLLER_PART_H_
#define CBT_PROGRAMS_COSI_CONTROLLER_PART_H_

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/kube/client.h"
#include "ops/event_log.h"
#include "programs/cluster/events.h"
#include "programs/cosi/api/change.h"
#include "programs/cosi/api/names.h"
#include "programs/cosi/controller/counters.h"
#include "programs/cosi/controller/options.h"
#include "programs/cosi/controller/watched.h"

namespace cbt::kube::cosi {

using cluster::Events;
using cluster::Subject;
using cluster::SubjectOf;

// All outlive the parts.
struct Tools {
  Client& client;
  const Watched& watched;
  Events& events;
  ControllerCounters& counters;
  ops::EventLog& log;
  const ControllerOptions& options;
  // The key comes again after a time.
  std::function<void(const std::string& key, std::chrono::milliseconds)> wake_later;
};

// An object waits for somebody else: says so to those who look at it, and is tried again later.
inline absl::Status Wait(Events& events, const Subject& subject, std::string_view reason,
                         const std::string& text) {
  events.Warn(subject, reason, text);
  return absl::UnavailableError(text);
}

// How long a driver may take before the request says so.
inline constexpr std::chrono::seconds kDriverTime{10};
// Events are forgotten by the API server, and sent again while their cause lasts.
inline constexpr std::chrono::minutes kSayAgain{5};

inline std::chrono::milliseconds WaitedSince(std::optional<Time> since) {
  if (!since.has_value()) return std::chrono::milliseconds(0);
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now() -
                                                               *since);
}

// A request waits for the driver since that time. The controller says it, as no sidecar of such a
// driver may run. `done`: what the driver has to do, as a participle.
inline void AwaitDriver(const Tools& tools, const Resource& resource, const ObjectMeta& request,
                        std::string_view driver, std::optional<Time> since, std::string_view done) {
  const Key key = {std::string(resource.kind), request.name_space, request.name};
  if (WaitedSince(since) < kDriverTime) {
    tools.wake_later(key.ToString(), kDriverTime);
    return;
  }
  tools.events.Warn(SubjectOf(resource, request), "WaitsForDriver",
                    absl::StrCat("driver ", AbslView(driver), " has not ", AbslView(done),
                                 " yet; if no other Event says why, no driver of this name runs"));
  tools.wake_later(key.ToString(), kSayAgain);
}

// OK also if it is gone already.
inline absl::Status IfThere(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_CONTROLLER_PART_H_

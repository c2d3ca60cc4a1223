// What each part of the controller works with.
#ifndef CBT_PROGRAMS_COSI_CONTROLLER_PART_H_
#define CBT_PROGRAMS_COSI_CONTROLLER_PART_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
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

// OK also if it is gone already.
inline absl::Status IfThere(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_CONTROLLER_PART_H_

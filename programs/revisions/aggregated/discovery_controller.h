// Looks whether the HTTPS services of drivers answer, and says so in their DriverDiscovery objects.
#ifndef CBT_PROGRAMS_REVISIONS_AGGREGATED_DISCOVERY_CONTROLLER_H_
#define CBT_PROGRAMS_REVISIONS_AGGREGATED_DISCOVERY_CONTROLLER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "cbt/kube/client.h"
#include "cbt/kube/controller.h"
#include "cbt/kube/watch.h"
#include "ops/event_log.h"
#include "programs/revisions/aggregated/api/driver_discovery.h"
#include "programs/revisions/aggregated/upstream.h"

namespace cbt::kube::aggregated {

// Each object gets a condition Reachable: True, reason Answers; False, reason Invalid (the object
// itself), NotReady (the service says so), Refused (it does not take our certificate) or NoAnswer.
// It is for people: pages are asked for whatever it says. Thread safe.
class DiscoveryController {
 public:
  // `find`: the object of a name as the watch has it. `may_act`: asked before each look. All must
  // outlive the object.
  DiscoveryController(Client& client, Upstream& upstream,
                      std::function<ObjectPtr(const std::string&)> find,
                      std::function<bool()> may_act, ops::EventLog& log);
  // Waits for what is under way.
  ~DiscoveryController() = default;
  DiscoveryController(const DiscoveryController&) = delete;
  DiscoveryController& operator=(const DiscoveryController&) = delete;

  // Looks at the object of this name soon.
  void Enqueue(const std::string& name) { queue_.Add(name); }
  void Start();
  // Waits for what is under way; nothing is looked at afterwards.
  void Stop() { workers_.reset(); }

 private:
  absl::Status Reconcile(const std::string& name);
  Reachability Ask(const Object& object);

  Client& client_;
  Upstream& upstream_;
  const std::function<ObjectPtr(const std::string&)> find_;
  const std::function<bool()> may_act_;
  ops::EventLog& log_;
  WorkQueue queue_;
  std::unique_ptr<Workers> workers_;  // last: it uses the others
};

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_DISCOVERY_CONTROLLER_H_

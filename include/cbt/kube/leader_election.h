// One of several processes acts, and another takes over when it is gone: leader election by a
// Lease. Part of cbt::kube.
#ifndef CBT_KUBE_LEADER_ELECTION_H_
#define CBT_KUBE_LEADER_ELECTION_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "cbt/version.h"

namespace cbt::kube {

struct LeaderElectionOptions {
  // The Lease. It is created if it is not there.
  std::string name_space = {};
  std::string name = {};
  // Of this process; no two may have the same. LeaderIdentity() makes one from the host's name.
  std::string identity = {};

  // lease_duration > renew_deadline > 1.2 * retry_period, and whole seconds for the first.
  //
  // How long others wait after the last sign of life of a leader that they see.
  std::chrono::milliseconds lease_duration = std::chrono::seconds(15);
  // A leader that could not renew for this long stops leading.
  std::chrono::milliseconds renew_deadline = std::chrono::seconds(10);
  // Between two attempts to renew; for those who wait to lead, up to 2.2 times as long.
  std::chrono::milliseconds retry_period = std::chrono::seconds(2);

  // Gives the lease up at the end, so that another process need not wait for it to expire.
  bool release = true;

  // Called on the elector's thread, in turns: started, stopped, started, ... They delay the next
  // renewal, so they must not block. What they throw is dropped.
  std::function<void()> on_started_leading = {};
  // This process must not act any more when it returns: another may become the leader right after.
  std::function<void()> on_stopped_leading = {};
  // Somebody else leads, or this process does: with the identity. Empty: the lease was released.
  std::function<void(const std::string& identity)> on_new_leader = {};
};

// "host" without what a label can't hold: characters other than letters, digits and "-" become "-",
// and a "-" at the end is followed by "X". As CSI's sidecars do it.
std::string LeaderIdentity(std::string_view host_name);
// Of this machine; in a pod, the name of the pod.
std::string LeaderIdentity();

// Takes part in an election until it is destroyed. A leader that loses the lease becomes a
// candidate again; CSI's sidecars exit in on_stopped_leading instead.
//
// Only this machine's clock counts: how old a lease is, is how long it has been seen unchanged. So
// clocks of machines may differ, but must run at the same speed. A process that is halted (a
// stopped container, a suspended machine) can't call on_stopped_leading in time: IsLeader() says no
// by itself when the lease may have expired, and what must never run twice asks it before each
// step.
class LeaderElector {
 public:
  // Starts the elector's thread. `client` must outlive the elector.
  // Errors: INVALID_ARGUMENT for options that can't work.
  static absl::StatusOr<std::unique_ptr<LeaderElector>> Create(Client& client,
                                                               LeaderElectionOptions options);

  // If this process leads: on_stopped_leading, then the lease is released. Takes as long as the
  // request that is under way. Must not run in a callback.
  ~LeaderElector();
  LeaderElector(const LeaderElector&) = delete;
  LeaderElector& operator=(const LeaderElector&) = delete;

  // This process holds the lease, and it can't have expired for others. Thread-safe, no waiting.
  bool IsLeader() const;
  // Who holds the lease, as far as is known; empty: none, or not known yet. Thread-safe.
  std::string Leader() const;

  // For /healthz/leader-election: UNAVAILABLE if this process believes that it leads although its
  // lease expired more than `tolerance` ago, because the elector's thread hangs. Thread-safe.
  absl::Status CheckHealth(std::chrono::milliseconds tolerance = std::chrono::seconds(20)) const;
  // Why the last attempt to get or renew the lease failed; OK if it did not. Thread-safe.
  absl::Status last_error() const;

 private:
  class Core;
  explicit LeaderElector(std::unique_ptr<Core> core);

  std::unique_ptr<Core> core_;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_LEADER_ELECTION_H_

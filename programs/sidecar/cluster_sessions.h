// Sessions of the proposal's first revision, as the session manager has put them into the cluster.
#ifndef CBT_PROGRAMS_SIDECAR_CLUSTER_SESSIONS_H_
#define CBT_PROGRAMS_SIDECAR_CLUSTER_SESSIONS_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "cbt/rpc/access.h"
#include "ops/event_log.h"
#include "programs/cluster/fresh_cache.h"
#include "programs/sidecar/stranger_limit.h"

namespace cbt::kube::sidecar {

// A token is the name of a SnapshotSessionData object in the sidecar's namespace. What the watch
// does not have, because it lags behind or is not current, is asked of the API server as often as
// StrangerLimit allows; a session that is deleted opens nothing once the watch has seen it. The
// time of a lookup in the watch does not depend on how much of a guess is right. Thread safe.
class ClusterSessions final : public rpc::SessionStore {
 public:
  // `watches` and `callers`: the clients of watches, and of what is asked for callers. The first
  // must live until Stop(), the object until the end of the second.
  // Errors: INVALID_ARGUMENT for what is no namespace.
  static absl::StatusOr<std::unique_ptr<ClusterSessions>> Create(Client& watches, Client& callers,
                                                                 const std::string& name_space,
                                                                 std::chrono::milliseconds timeout,
                                                                 ops::EventLog& log);

  // Ends the watch. Must not run in a callback of a client.
  void Stop() { watch_->Stop(); }

  void Find(const Secret& token, rpc::Done<rpc::Session> done) override {
    FindFrom("", token, std::move(done));
  }
  void FindFrom(const std::string& peer, const Secret& token,
                rpc::Done<rpc::Session> done) override;

 private:
  ClusterSessions(Client& callers, std::string name_space, std::chrono::milliseconds timeout,
                  ops::EventLog& log);
  // Null: not there, or the watch is not current.
  ObjectPtr FindWatched(std::string_view token) const;

  Client& callers_;
  const std::string name_space_;
  const std::chrono::milliseconds timeout_;
  ops::EventLog& log_;
  StrangerLimit strangers_;
  std::unique_ptr<cluster::FreshCache> watch_;
};

}  // namespace cbt::kube::sidecar

#endif  // CBT_PROGRAMS_SIDECAR_CLUSTER_SESSIONS_H_

// How a request becomes a session, or fails.
#ifndef CBT_PROGRAMS_REVISIONS_SESSIONS_SESSION_OPENER_H_
#define CBT_PROGRAMS_REVISIONS_SESSIONS_SESSION_OPENER_H_

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "ops/event_log.h"
#include "programs/cluster/session_objects.h"
#include "programs/revisions/sessions/counters.h"

namespace cbt::kube::sessions {

// Takes one request as far as it can go: absent -> Pending -> Ready or Failed. Every step is stored
// before the next, and a step that was stored is not done again:
//
//   1. Pending, and the time of expiry, which never changes after that
//   2. the session's data in the driver's namespace, under a random name: the token. Data that a
//      former run has made for this request (by its uid) is taken over, so that a restart opens no
//      second session.
//   3. Ready, with token, address and CA; only if the request was not changed meanwhile
//
// A user who sees Ready therefore has a session. Data that no request names, because two managers
// were active for a moment, is for the Sweeper.
//
// Blocks: for workers. Thread safe.
class SessionOpener {
 public:
  // `may_act`: asked before each step that writes.
  SessionOpener(Client& client, std::chrono::seconds session_time, std::function<bool()> may_act,
                Counters& counters, ops::EventLog& log)
      : client_(client),
        session_time_(session_time),
        may_act_(std::move(may_act)),
        counters_(counters),
        log_(log) {}

  // `key`: "namespace/name". OK: there is nothing more to do, or this process may not act. Errors,
  // worth another try: those of the API server. Their texts have no token.
  absl::Status Open(const std::string& key);

 private:
  // Stores the request's new status; `object` becomes what was stored.
  absl::Status Store(const cluster::SnapshotSessionRequest& request, Object& object);
  absl::Status MarkPending(cluster::SnapshotSessionRequest& request, Object& object);
  absl::Status Fail(cluster::SnapshotSessionRequest& request, Object& object,
                    const std::string& why);
  // The token of data that a former run has made for the request; empty without one.
  absl::StatusOr<std::string> FindData(const cluster::SnapshotSessionRequest& request,
                                       const std::string& driver_namespace);
  // The token of new data.
  absl::StatusOr<std::string> MakeData(const cluster::SnapshotSessionRequest& request,
                                       const std::string& driver_namespace);

  Client& client_;
  const std::chrono::seconds session_time_;
  const std::function<bool()> may_act_;
  Counters& counters_;
  ops::EventLog& log_;
};

}  // namespace cbt::kube::sessions

#endif  // CBT_PROGRAMS_REVISIONS_SESSIONS_SESSION_OPENER_H_

// Removes sessions whose time is over, and those that no request names.
#ifndef CBT_PROGRAMS_REVISIONS_SESSIONS_SWEEPER_H_
#define CBT_PROGRAMS_REVISIONS_SESSIONS_SWEEPER_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "cbt/kube/watch.h"
#include "ops/event_log.h"
#include "programs/cluster/session_objects.h"
#include "programs/revisions/sessions/counters.h"

namespace cbt::kube::sessions {

// Looks at all requests and all data, as the caches have them:
//
//   a request past its expiry             is deleted
//   data past its expiry                  is deleted
//   data of a request that was deleted,   is deleted: a user who deletes a request ends its
//     failed, or has another session        session, and each open session has a request
//   a request that is not in a final      is handed to `pending`
//     state
//
// Before data is deleted for its request's sake, the API server is asked for the request: a cache
// may lag behind. Data that names no request is somebody else's, and stays until its expiry.
class Sweeper {
 public:
  // All must outlive the object. `may_act`: asked before each deletion.
  Sweeper(Client& client, const ObjectCache& requests, const ObjectCache& data,
          std::function<bool()> may_act, std::function<void(const std::string& key)> pending,
          Counters& counters, ops::EventLog& log)
      : client_(client),
        requests_(requests),
        data_(data),
        may_act_(std::move(may_act)),
        pending_(std::move(pending)),
        counters_(counters),
        log_(log) {}

  // One round. Blocks. What fails is for the next round.
  void Sweep();

 private:
  void SweepRequest(const Object& object, Time now);
  void SweepData(const Object& object, Time now);
  absl::StatusOr<bool> IsOrphan(const Object& object, const cluster::SnapshotSessionData& data);
  // Exactly this object, not one that has its name by now. True: it is gone by this.
  bool Delete(const Resource& resource, const Object& object);

  Client& client_;
  const ObjectCache& requests_;
  const ObjectCache& data_;
  const std::function<bool()> may_act_;
  const std::function<void(const std::string& key)> pending_;
  Counters& counters_;
  ops::EventLog& log_;
};

}  // namespace cbt::kube::sessions

#endif  // CBT_PROGRAMS_REVISIONS_SESSIONS_SWEEPER_H_

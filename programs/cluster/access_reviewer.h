// May this user do that? Asks the API server: SubjectAccessReview.
#ifndef CBT_PROGRAMS_CLUSTER_ACCESS_REVIEWER_H_
#define CBT_PROGRAMS_CLUSTER_ACCESS_REVIEWER_H_

#include <chrono>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "cbt/kube/client.h"
#include "cbt/kube/typed_objects.h"
#include "cbt/rpc/access.h"
#include "ops/event_log.h"
#include "programs/cluster/answer_cache.h"

namespace cbt::kube::cluster {

// The right to read metadata of snapshots: to get volumesnapshots of the namespace, all of them. A
// rule that is limited to names does not suffice.
SubjectAccessReview MayGetSnapshots(UserInfo user, const std::string& name_space);

// OK, PERMISSION_DENIED with a text for the user, or UNAVAILABLE for whatever keeps the API server
// from answering. A user without a name and groups is denied. Thread safe.
class AccessReviewer {
 public:
  static constexpr std::chrono::seconds kKeepAllowed{5};
  static constexpr std::chrono::seconds kKeepDenied{1};
  static constexpr size_t kMaxKept = 4096;

  // The object must live until the client's end.
  AccessReviewer(Client& client, std::chrono::milliseconds timeout, ops::EventLog& log)
      : client_(client),
        timeout_(timeout),
        log_(log),
        kept_({.yes_time = kKeepAllowed, .no_time = kKeepDenied, .max_entries = kMaxKept}) {}

  // Calls `done` once, during the call or later. Answers are kept for seconds.
  void Ask(const SubjectAccessReview& question, rpc::DoneStatus done);
  // The same, and asks the API server each time.
  void AskAnew(const SubjectAccessReview& question, rpc::DoneStatus done);
  // Ask(), and waits for the answer; not in a callback of the client. Members of system:masters may
  // do everything, as with every API server.
  absl::Status Wait(const SubjectAccessReview& question);

 private:
  // Stands for a yes.
  struct Allowed {};

  Client& client_;
  const std::chrono::milliseconds timeout_;
  ops::EventLog& log_;
  AnswerCache<Allowed> kept_;
};

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_ACCESS_REVIEWER_H_

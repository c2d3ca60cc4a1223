// May this user do that? Asks the API server: SubjectAccessReview.
#ifndef CBT_PROGRAMS_REVISIONS_AGGREGATED_AUTHORIZER_H_
#define CBT_PROGRAMS_REVISIONS_AGGREGATED_AUTHORIZER_H_

#include <chrono>

#include "absl/status/status.h"
#include "cbt/kube/client.h"
#include "cbt/kube/typed_objects.h"
#include "ops/event_log.h"
#include "programs/cluster/answer_cache.h"

namespace cbt::kube::aggregated {

// Answers are kept for seconds. Members of system:masters may do everything, as with every API
// server. Thread safe.
class Authorizer {
 public:
  static constexpr std::chrono::seconds kKeepAllowed{5};
  static constexpr std::chrono::seconds kKeepDenied{1};
  static constexpr size_t kMaxKept = 4096;

  // The object must live until the client's end.
  Authorizer(Client& client, std::chrono::milliseconds timeout, ops::EventLog& log)
      : client_(client),
        timeout_(timeout),
        log_(log),
        kept_({.yes_time = kKeepAllowed, .no_time = kKeepDenied, .max_entries = kMaxKept}) {}

  // Waits for the answer; not in a callback of the client. OK, PERMISSION_DENIED with a text for
  // the user, or UNAVAILABLE if the API server can't be asked.
  absl::Status Ask(const SubjectAccessReview& question);

 private:
  struct Allowed {};

  Client& client_;
  const std::chrono::milliseconds timeout_;
  ops::EventLog& log_;
  cluster::AnswerCache<Allowed> kept_;
};

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_AUTHORIZER_H_

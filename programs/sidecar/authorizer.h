// May this caller read snapshots of the namespace? Asks the API server: SubjectAccessReview.
#ifndef CBT_PROGRAMS_SIDECAR_AUTHORIZER_H_
#define CBT_PROGRAMS_SIDECAR_AUTHORIZER_H_

#include <chrono>
#include <string>

#include "cbt/kube/client.h"
#include "cbt/kube/typed_objects.h"
#include "cbt/rpc/access.h"
#include "ops/event_log.h"
#include "programs/cluster/answer_cache.h"

namespace cbt::kube::sidecar {

// Permitted is who may get volumesnapshots of the namespace, all of them: a rule that is limited to
// names does not suffice. Everything that the TokenReview has said of the caller is passed on.
// Answers are kept for seconds. Whatever keeps the API server from answering is UNAVAILABLE. Thread
// safe.
class AccessReviewer final : public rpc::Authorizer {
 public:
  static constexpr std::chrono::seconds kKeepAllowed{5};
  static constexpr std::chrono::seconds kKeepDenied{1};
  static constexpr size_t kMaxKept = 4096;

  // The object must live until the client's end.
  AccessReviewer(Client& client, std::chrono::milliseconds timeout, ops::EventLog& log);

  void Authorize(const rpc::Principal& who, const std::string& name_space,
                 rpc::DoneStatus done) override;

 private:
  // Stands for a yes.
  struct Allowed {};

  void Review(const SubjectAccessReview& review, cluster::AnswerCache<Allowed>::Done answer);

  Client& client_;
  const std::chrono::milliseconds timeout_;
  ops::EventLog& log_;
  cluster::AnswerCache<Allowed> kept_;
};

}  // namespace cbt::kube::sidecar

#endif  // CBT_PROGRAMS_SIDECAR_AUTHORIZER_H_

// May this caller read snapshots of the namespace?
#ifndef CBT_PROGRAMS_SIDECAR_AUTHORIZER_H_
#define CBT_PROGRAMS_SIDECAR_AUTHORIZER_H_

#include <string>
#include <utility>

#include "cbt/rpc/access.h"
#include "programs/cluster/access_reviewer.h"

namespace cbt::kube::sidecar {

// Everything that the TokenReview has said of the caller is passed on. Thread safe.
class SnapshotAuthorizer final : public rpc::Authorizer {
 public:
  explicit SnapshotAuthorizer(cluster::AccessReviewer& reviewer) : reviewer_(reviewer) {}

  void Authorize(const rpc::Principal& who, const std::string& name_space,
                 rpc::DoneStatus done) override {
    UserInfo user = {
        .username = who.name, .uid = who.uid, .groups = who.groups, .extra = who.extra};
    reviewer_.Ask(cluster::MayGetSnapshots(std::move(user), name_space), std::move(done));
  }

 private:
  cluster::AccessReviewer& reviewer_;
};

}  // namespace cbt::kube::sidecar

#endif  // CBT_PROGRAMS_SIDECAR_AUTHORIZER_H_

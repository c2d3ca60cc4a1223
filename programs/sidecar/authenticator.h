// Whose token is it? Asks the API server: TokenReview.
#ifndef CBT_PROGRAMS_SIDECAR_AUTHENTICATOR_H_
#define CBT_PROGRAMS_SIDECAR_AUTHENTICATOR_H_

#include <chrono>
#include <string>
#include <utility>

#include "cbt/kube/client.h"
#include "cbt/rpc/access.h"
#include "ops/event_log.h"
#include "programs/cluster/answer_cache.h"
#include "programs/sidecar/audience.h"
#include "programs/sidecar/stranger_limit.h"

namespace cbt::kube::sidecar {

// A token is valid if the API server says so for the sidecar's audience. Answers are kept for
// seconds under a hash of token and audience: a token that is revoked, or expires, opens nothing
// after that. Whatever keeps the API server from answering is UNAVAILABLE, and so is a question
// that StrangerLimit does not allow now. What can't be a token is refused without a question.
// Thread safe.
class TokenReviewer final : public rpc::Authenticator {
 public:
  static constexpr std::chrono::seconds kKeepValid{10};
  static constexpr std::chrono::seconds kKeepInvalid{2};
  static constexpr size_t kMaxKept = 4096;

  // The object must live until the client's end.
  TokenReviewer(Client& client, Audience& audience, std::chrono::milliseconds timeout,
                ops::EventLog& log);

  void Authenticate(const Secret& token, rpc::Done<rpc::Principal> done) override {
    AuthenticateFrom("", token, std::move(done));
  }
  void AuthenticateFrom(const std::string& peer, const Secret& token,
                        rpc::Done<rpc::Principal> done) override;

 private:
  void Review(const Secret& token, const std::string& audience,
              cluster::AnswerCache<rpc::Principal>::Done answer);

  Client& client_;
  Audience& audience_;
  const std::chrono::milliseconds timeout_;
  ops::EventLog& log_;
  cluster::AnswerCache<rpc::Principal> kept_;
  StrangerLimit strangers_;
};

}  // namespace cbt::kube::sidecar

#endif  // CBT_PROGRAMS_SIDECAR_AUTHENTICATOR_H_

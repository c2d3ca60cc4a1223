#include "programs/sidecar/authenticator.h"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "cbt/kube/typed_objects.h"

namespace cbt::kube::sidecar {

TokenReviewer::TokenReviewer(Client& client, Audience& audience, std::chrono::milliseconds timeout,
                             ops::EventLog& log)
    : client_(client),
      audience_(audience),
      timeout_(timeout),
      log_(log),
      kept_({.yes_time = kKeepValid, .no_time = kKeepInvalid, .max_entries = kMaxKept}) {}

void TokenReviewer::AuthenticateFrom(const std::string& peer, const Secret& token,
                                     rpc::Done<rpc::Principal> done) {
  if (!CouldBeToken(token.Reveal())) {
    return done(absl::UnauthenticatedError("this is no token"));
  }
  // The argument lives only until `done` is called; the question may outlive that.
  const auto copy = std::make_shared<const Secret>(token.Copy());
  audience_.Get(
      [this, peer, copy, done = std::move(done)](const absl::StatusOr<std::string>& audience) {
        if (!audience.ok()) return done(audience.status());
        const std::string_view parts[] = {*audience, copy->Reveal()};
        const cluster::QuestionKey key = cluster::KeyOf(parts);
        kept_.Ask(key, done,
                  [this, key, peer, copy,
                   name = *audience](cluster::AnswerCache<rpc::Principal>::Done answer) {
                    std::optional<FairPlaces::Place> place = strangers_.Enter(key, peer);
                    if (!place.has_value()) {
                      log_.Write(rpc::LogLevel::kWarning, "too many unknown tokens",
                                 {{.key = "address", .value = peer}});
                      return answer(absl::UnavailableError("too many unknown tokens"));
                    }
                    // Callbacks are copied.
                    auto held = std::make_shared<FairPlaces::Place>(*std::move(place));
                    Review(*copy, name,
                           [this, key, held = std::move(held),
                            answer = std::move(answer)](const absl::StatusOr<rpc::Principal>& who) {
                             if (who.ok()) strangers_.Recognise(key);
                             held->Release();
                             answer(who);
                           });
                  });
      });
}

void TokenReviewer::Review(const Secret& token, const std::string& audience,
                           cluster::AnswerCache<rpc::Principal>::Done answer) {
  TokenReview review;
  review.token = token.Copy();
  review.audiences = {audience};
  WriteOptions options;
  options.timeout = timeout_;
  client_.CreateAsync<TokenReview>(
      review, options,
      [this, audience, answer = std::move(answer)](absl::StatusOr<TokenReview> reviewed) {
        if (!reviewed.ok()) {
          log_.Failed("TokenReview failed", reviewed.status());
          return answer(absl::UnavailableError("the token can't be reviewed now"));
        }
        if (!reviewed->AuthenticatedFor(audience)) {
          log_.Write(rpc::LogLevel::kInfo, "token refused",
                     {{.key = "text",
                       .value = reviewed->status.has_value() ? reviewed->status->error
                                                             : "the review has no status"}});
          return answer(absl::UnauthenticatedError("the token is not valid"));
        }
        UserInfo& user = reviewed->status->user;
        if (user.username.empty() && user.groups.empty()) {
          log_.Write(rpc::LogLevel::kError, "TokenReview names no user");
          return answer(absl::UnavailableError("the token can't be reviewed now"));
        }
        answer(rpc::Principal{.name = std::move(user.username),
                              .groups = std::move(user.groups),
                              .uid = std::move(user.uid),
                              .extra = std::move(user.extra)});
      });
}

}  // namespace cbt::kube::sidecar

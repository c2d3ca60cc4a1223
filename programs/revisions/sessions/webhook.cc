#include "programs/revisions/sessions/webhook.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/kube/typed_objects.h"
#include "programs/cluster/session_objects.h"

namespace cbt::kube::sessions {
namespace {

http_server::Response Plain(int code, std::string text) {
  return {.code = code, .content_type = "text/plain; charset=utf-8", .body = std::move(text)};
}

http_server::Response Answer(const std::string& uid, const AdmissionVerdict& verdict) {
  return {.body = AnswerReview(uid, verdict)};
}

// The same question as that of the final revision's sidecar: without a name, so that a right to
// some snapshots of the namespace is not enough.
SubjectAccessReview MayGetSnapshots(const AdmissionRequest& review) {
  SubjectAccessReview question;
  question.resource =
      SubjectAccessReview::ResourceAttributes{.name_space = review.name_space,
                                              .verb = "get",
                                              .group = std::string(kVolumeSnapshots.group),
                                              .version = std::string(kVolumeSnapshots.version),
                                              .resource = std::string(kVolumeSnapshots.plural)};
  question.user = review.user;
  return question;
}

}  // namespace

void Webhook::Handle(const http_server::Request& request, const http_server::Respond& respond) {
  if (request.path != kPath) return respond(Plain(404, "there is nothing here\n"));
  if (request.method != "POST") {
    http_server::Response response = Plain(405, "expected POST\n");
    response.headers.emplace_back("Allow", "POST");
    return respond(std::move(response));
  }
  std::optional<FairPlaces::Place> place = places_.Take(request.peer);
  if (!place.has_value() || rate_.Take(request.peer, FairLimit::Clock::now()).has_value()) {
    ++counters_.reviews_failed;
    log_.Write(rpc::LogLevel::kWarning, "too many reviews",
               {{.key = "address", .value = request.peer}});
    return respond(Plain(429, "too many reviews from this address\n"));
  }
  const absl::StatusOr<AdmissionRequest> review = AdmissionRequest::Parse(request.body);
  if (!review.ok()) {
    ++counters_.reviews_failed;
    log_.Failed("review not understood", review.status());
    return respond(Plain(400, absl::StrCat(review.status().message(), "\n")));
  }
  if (review->operation != "CREATE" || review->group != cluster::kSnapshotSessionRequests.group ||
      review->resource != cluster::kSnapshotSessionRequests.plural ||
      !review->subresource.empty() || review->name_space.empty()) {
    ++counters_.reviews_failed;
    return respond(Answer(
        review->uid,
        {.code = 400,
         .reason = "BadRequest",
         .message = absl::StrCat(review->operation, " of ", review->resource,
                                 ": the webhook is for CREATE of ",
                                 AbslView(cluster::kSnapshotSessionRequests.plural), " only")}));
  }
  AskForAccess(*review, *std::move(place), respond);
}

void Webhook::AskForAccess(const AdmissionRequest& review, FairPlaces::Place place,
                           const http_server::Respond& respond) {
  // Callbacks are copied.
  const auto held = std::make_shared<FairPlaces::Place>(std::move(place));
  const auto answer = [this, held, uid = review.uid, name_space = review.name_space,
                       user = review.user.username,
                       respond](const absl::StatusOr<SubjectAccessReview>& access) {
    held->Release();
    if (!access.ok()) {
      ++counters_.reviews_failed;
      log_.Failed("access not checked", access.status());
      return respond(Answer(uid, {.code = 503,
                                  .reason = "ServiceUnavailable",
                                  .message = "access to VolumeSnapshots can't be checked now"}));
    }
    if (access->Allowed()) {
      ++counters_.reviews_allowed;
      return respond(Answer(uid, {.allowed = true}));
    }
    ++counters_.reviews_denied;
    respond(Answer(uid, {.message = absl::StrCat("user \"", user,
                                                 "\" may not get volumesnapshots in namespace \"",
                                                 name_space, "\", so not open sessions there")}));
  };
  // The API server takes no question about a user without a name and groups.
  if (review.user.username.empty() && review.user.groups.empty()) {
    return answer(SubjectAccessReview());
  }
  WriteOptions options;
  options.timeout = api_timeout_;
  client_.CreateAsync<SubjectAccessReview>(MayGetSnapshots(review), options, answer);
}

}  // namespace cbt::kube::sessions

#include "programs/revisions/sessions/webhook.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "programs/cluster/session_objects.h"

namespace cbt::kube::sessions {
namespace {

http_server::Response Plain(int code, std::string text) {
  return {.code = code, .content_type = "text/plain; charset=utf-8", .body = std::move(text)};
}

http_server::Response Answer(const std::string& uid, const AdmissionVerdict& verdict) {
  return {.body = AnswerReview(uid, verdict)};
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
                       user = review.user.username, respond](const absl::Status& access) {
    held->Release();
    if (access.ok()) {
      ++counters_.reviews_allowed;
      return respond(Answer(uid, {.allowed = true}));
    }
    if (!absl::IsPermissionDenied(access)) {
      ++counters_.reviews_failed;
      return respond(Answer(uid, {.code = 503,
                                  .reason = "ServiceUnavailable",
                                  .message = "access to VolumeSnapshots can't be checked now"}));
    }
    ++counters_.reviews_denied;
    respond(Answer(uid, {.message = absl::StrCat("user \"", user,
                                                 "\" may not get volumesnapshots in namespace \"",
                                                 name_space, "\", so not open sessions there")}));
  };
  // Each time: a session lives for long.
  reviewer_.AskAnew(cluster::MayGetSnapshots(review.user, review.name_space), answer);
}

}  // namespace cbt::kube::sessions

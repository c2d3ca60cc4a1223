#include "programs/sidecar/authorizer.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace cbt::kube::sidecar {
namespace {

SubjectAccessReview QuestionOf(const rpc::Principal& who, const std::string& name_space) {
  SubjectAccessReview review;
  review.resource =
      SubjectAccessReview::ResourceAttributes{.name_space = name_space,
                                              .verb = "get",
                                              .group = std::string(kVolumeSnapshots.group),
                                              .version = std::string(kVolumeSnapshots.version),
                                              .resource = std::string(kVolumeSnapshots.plural)};
  review.user = {.username = who.name, .uid = who.uid, .groups = who.groups, .extra = who.extra};
  return review;
}

cluster::QuestionKey KeyOfQuestion(const UserInfo& user, const std::string& name_space) {
  // Counts, so that no list can be taken for the one after it.
  std::vector<std::string> counts;
  counts.reserve(user.extra.size() + 1);  // views must stay valid
  std::vector<std::string_view> parts = {name_space, user.username, user.uid};
  const auto add = [&](const std::vector<std::string>& values) {
    counts.push_back(std::to_string(values.size()));
    parts.push_back(counts.back());
    parts.insert(parts.end(), values.begin(), values.end());
  };
  add(user.groups);
  for (const auto& [key, values] : user.extra) {
    parts.push_back(key);
    add(values);
  }
  return cluster::KeyOf(parts);
}

}  // namespace

AccessReviewer::AccessReviewer(Client& client, std::chrono::milliseconds timeout,
                               ops::EventLog& log)
    : client_(client),
      timeout_(timeout),
      log_(log),
      kept_({.yes_time = kKeepAllowed, .no_time = kKeepDenied, .max_entries = kMaxKept}) {}

void AccessReviewer::Authorize(const rpc::Principal& who, const std::string& name_space,
                               rpc::DoneStatus done) {
  SubjectAccessReview review = QuestionOf(who, name_space);
  const cluster::QuestionKey key = KeyOfQuestion(review.user, name_space);
  kept_.Ask(
      key,
      [done = std::move(done)](const absl::StatusOr<Allowed>& answer) { done(answer.status()); },
      [this, review = std::move(review)](cluster::AnswerCache<Allowed>::Done answer) {
        Review(review, std::move(answer));
      });
}

void AccessReviewer::Review(const SubjectAccessReview& review,
                            cluster::AnswerCache<Allowed>::Done answer) {
  WriteOptions options;
  options.timeout = timeout_;
  client_.CreateAsync<SubjectAccessReview>(
      review, options,
      [this, user = review.user.username, name_space = review.resource->name_space,
       answer = std::move(answer)](const absl::StatusOr<SubjectAccessReview>& reviewed) {
        if (!reviewed.ok()) {
          log_.Failed("SubjectAccessReview failed", reviewed.status());
          return answer(absl::UnavailableError("access can't be reviewed now"));
        }
        if (!reviewed->status.has_value()) {
          log_.Write(rpc::LogLevel::kError, "SubjectAccessReview has no status");
          return answer(absl::UnavailableError("access can't be reviewed now"));
        }
        if (reviewed->Allowed()) return answer(Allowed());
        log_.Write(rpc::LogLevel::kWarning, "access denied",
                   {{.key = "user", .value = user},
                    {.key = "namespace", .value = name_space},
                    {.key = "reason", .value = reviewed->status->reason}});
        answer(absl::PermissionDeniedError("the caller may not get volumesnapshots"));
      });
}

}  // namespace cbt::kube::sidecar

#include "programs/cluster/access_reviewer.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "programs/cluster/objects.h"

namespace cbt::kube::cluster {
namespace {

QuestionKey KeyOfQuestion(const SubjectAccessReview& question) {
  const UserInfo& user = question.user;
  // Counts, so that no list can be taken for the one after it.
  std::vector<std::string> counts;
  counts.reserve(user.extra.size() + 1);  // views must stay valid
  std::vector<std::string_view> parts = {user.username, user.uid};
  if (question.resource.has_value()) {
    const auto& what = *question.resource;
    parts.insert(parts.end(), {what.name_space, what.verb, what.group, what.version, what.resource,
                               what.subresource, what.name});
  }
  if (question.non_resource.has_value()) {
    parts.insert(parts.end(), {question.non_resource->path, question.non_resource->verb});
  }
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
  return KeyOf(parts);
}

// As the API server itself words it.
std::string DenialOf(const SubjectAccessReview& question) {
  const std::string user = absl::StrCat("user \"", question.user.username, "\" cannot ");
  if (question.non_resource.has_value()) {
    return absl::StrCat(user, question.non_resource->verb, " path \"", question.non_resource->path,
                        "\"");
  }
  const auto& what = *question.resource;
  return absl::StrCat(user, what.verb, " resource \"", what.resource, "\" in API group \"",
                      what.group, "\" in the namespace \"", what.name_space, "\"");
}

}  // namespace

SubjectAccessReview MayGetSnapshots(UserInfo user, const std::string& name_space) {
  SubjectAccessReview question;
  question.resource =
      SubjectAccessReview::ResourceAttributes{.name_space = name_space,
                                              .verb = "get",
                                              .group = std::string(kVolumeSnapshots.group),
                                              .version = std::string(kVolumeSnapshots.version),
                                              .resource = std::string(kVolumeSnapshots.plural)};
  question.user = std::move(user);
  return question;
}

void AccessReviewer::Ask(const SubjectAccessReview& question, rpc::DoneStatus done) {
  kept_.Ask(
      KeyOfQuestion(question),
      [done = std::move(done)](const absl::StatusOr<Allowed>& answer) { done(answer.status()); },
      [&](AnswerCache<Allowed>::Done answer) {
        AskAnew(question, [answer = std::move(answer)](const absl::Status& status) {
          if (!status.ok()) return answer(status);
          answer(Allowed());
        });
      });
}

void AccessReviewer::AskAnew(const SubjectAccessReview& question, rpc::DoneStatus done) {
  std::string denial = DenialOf(question);
  // The API server takes no question about such a user.
  if (question.user.username.empty() && question.user.groups.empty()) {
    return done(absl::PermissionDeniedError(denial));
  }
  WriteOptions options;
  options.timeout = timeout_;
  client_.CreateAsync<SubjectAccessReview>(
      question, options,
      [this, denial = std::move(denial),
       done = std::move(done)](const absl::StatusOr<SubjectAccessReview>& reviewed) {
        absl::Status failure = reviewed.status();
        if (failure.ok() && !reviewed->status.has_value()) {
          failure = absl::InternalError("the review has no status");
        }
        if (!failure.ok()) {
          log_.Failed("SubjectAccessReview failed", failure);
          return done(absl::UnavailableError("access can't be reviewed now"));
        }
        if (reviewed->Allowed()) return done(absl::OkStatus());
        log_.Write(rpc::LogLevel::kWarning, "access denied",
                   {{.key = "text", .value = denial},
                    {.key = "reason", .value = reviewed->status->reason}});
        done(absl::PermissionDeniedError(denial));
      });
}

absl::Status AccessReviewer::Wait(const SubjectAccessReview& question) {
  const std::vector<std::string>& groups = question.user.groups;
  if (std::find(groups.begin(), groups.end(), "system:masters") != groups.end()) {
    return absl::OkStatus();
  }
  return Await<absl::Status>([&](rpc::DoneStatus done) { Ask(question, std::move(done)); });
}

}  // namespace cbt::kube::cluster

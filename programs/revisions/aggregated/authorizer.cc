#include "programs/revisions/aggregated/authorizer.h"

#include <algorithm>
#include <array>
#include <future>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace cbt::kube::aggregated {
namespace {

bool IsMaster(const UserInfo& user) {
  return std::find(user.groups.begin(), user.groups.end(), "system:masters") != user.groups.end();
}

// As the API server itself words it.
std::string DenialOf(const SubjectAccessReview& question) {
  if (question.non_resource.has_value()) {
    return absl::StrCat("user \"", question.user.username, "\" cannot ",
                        question.non_resource->verb, " path \"", question.non_resource->path, "\"");
  }
  const auto& resource = *question.resource;
  return absl::StrCat("user \"", question.user.username, "\" cannot ", resource.verb,
                      " resource \"", resource.resource, "\" in API group \"", resource.group,
                      "\" in the namespace \"", resource.name_space, "\"");
}

}  // namespace

absl::Status Authorizer::Ask(const SubjectAccessReview& question) {
  if (IsMaster(question.user)) return absl::OkStatus();
  const std::string json = question.Encode().ToJson();
  const std::array<std::string_view, 1> parts = {json};
  const auto answer = std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> answered = answer->get_future();
  kept_.Ask(
      cluster::KeyOf(parts),
      [answer](const absl::StatusOr<Allowed>& access) { answer->set_value(access.status()); },
      [&](cluster::AnswerCache<Allowed>::Done done) {
        WriteOptions options;
        options.timeout = timeout_;
        client_.CreateAsync<SubjectAccessReview>(
            question, options,
            [this, denial = DenialOf(question),
             done = std::move(done)](const absl::StatusOr<SubjectAccessReview>& reviewed) {
              if (!reviewed.ok() || !reviewed->status.has_value()) {
                log_.Failed("access not reviewed", reviewed.status());
                return done(absl::UnavailableError("access can't be reviewed now"));
              }
              if (!reviewed->Allowed()) return done(absl::PermissionDeniedError(denial));
              done(Allowed());
            });
      });
  return answered.get();
}

}  // namespace cbt::kube::aggregated

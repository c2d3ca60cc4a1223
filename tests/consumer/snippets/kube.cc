// Snippets that need cbt::kube.
#include <string>

#include "cbt/kube/client.h"
#include "cbt/kube/status.h"
#include "cbt/kube/typed_objects.h"

// [review]
// Whether the bearer of `token` may read snapshots of a namespace. Every failure is an error, and
// whatever the server leaves out grants nothing.
absl::StatusOr<bool> MayReadSnapshots(cbt::kube::Client& client, const cbt::Secret& token,
                                      const std::string& audience, const std::string& name_space) {
  const auto review =
      client.Create(cbt::kube::TokenReview{.token = token.Copy(), .audiences = {audience}});
  if (!review.ok()) return review.status();
  if (!review->AuthenticatedFor(audience)) return false;
  const auto access = client.Create(cbt::kube::SubjectAccessReview{
      .resource =
          cbt::kube::SubjectAccessReview::ResourceAttributes{.name_space = name_space,
                                                             .verb = "get",
                                                             .group = "snapshot.storage.k8s.io",
                                                             .version = "v1",
                                                             .resource = "volumesnapshots"},
      .user = review->status->user});
  if (!access.ok()) return access.status();
  return access->Allowed();
}
// [/review]

// [update]
// Counts up a number in a config map, also while others do the same.
absl::Status CountUp(cbt::kube::Client& client, const std::string& name_space,
                     const std::string& name) {
  for (;;) {
    auto object = client.Get(cbt::kube::kConfigMaps, name_space, name);
    if (!object.ok()) return object.status();
    const auto count = object->OptionalString({"data", "count"});
    if (!count.ok()) return count.status();
    object->SetString({"data", "count"}, std::to_string(std::stol(count->value_or("0")) + 1));
    // Fields that this program does not know go back as they came.
    const absl::Status status = client.Update(cbt::kube::kConfigMaps, *object).status();
    if (!cbt::kube::IsConflict(status)) return status;
  }
}
// [/update]

// [async]
// Asks without waiting. `done` is called once, in the client's thread.
cbt::kube::Call AskForLease(cbt::kube::Client& client,
                            std::function<void(std::string holder)> done) {
  return client.GetAsync<cbt::kube::Lease>(
      "kube-system", "snapshot-controller-leader", {.timeout = std::chrono::seconds(5)},
      [done = std::move(done)](absl::StatusOr<cbt::kube::Lease> lease) {
        done(lease.ok() ? lease->holder : std::string());
      });
}
// [/async]

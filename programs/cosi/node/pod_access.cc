#include "programs/cosi/node/pod_access.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "programs/cosi/api/change.h"
#include "programs/cosi/api/names.h"

namespace cbt::kube::cosi {

absl::Status PodAccess::Missing(const Pod& pod, const std::string& text) {
  events_.Warn({.resource = kPods, .name_space = pod.name_space, .name = pod.name, .uid = pod.uid},
               "BucketAccessMissing", text);
  return absl::UnavailableError(text);
}

absl::StatusOr<PodAccess::Granted> PodAccess::Find(const Pod& pod, const std::string& request) {
  const auto wanted = client_.Get<BucketAccessRequest>(pod.name_space, request);
  if (absl::IsNotFound(wanted.status())) {
    return Missing(pod, absl::StrCat("BucketAccessRequest ", request, " does not exist"));
  }
  if (!wanted.ok()) return wanted.status();
  if (wanted->meta.deletion_timestamp.has_value()) {
    return Missing(pod, absl::StrCat("BucketAccessRequest ", request, " is being deleted"));
  }
  if (wanted->access_name.empty()) {
    return Missing(pod, absl::StrCat("BucketAccessRequest ", request, " has no BucketAccess yet"));
  }
  absl::StatusOr<Object> object = client_.Get(kBucketAccesses, "", wanted->access_name);
  if (!object.ok() && !absl::IsNotFound(object.status())) return object.status();
  const absl::StatusOr<BucketAccess> access =
      object.ok() ? BucketAccess::Decode(*object) : absl::StatusOr<BucketAccess>(object.status());
  if (!access.ok() || access->request.uid != wanted->meta.uid ||
      access->meta.deletion_timestamp.has_value()) {
    return Missing(pod, absl::StrCat("the access of BucketAccessRequest ", request, " is gone"));
  }
  if (!access->granted) {
    return Missing(pod, absl::StrCat("BucketAccess ", access->meta.name, " of BucketAccessRequest ",
                                     request, " is not granted yet"));
  }
  Granted granted;
  if (!access->credentials.empty()) {
    const absl::StatusOr<Object> secret =
        client_.Get(kSecrets, access->credentials.name_space, access->credentials.name);
    if (!secret.ok()) {
      return Missing(pod, absl::StrCat("the Secret of BucketAccess ", access->meta.name,
                                       " can't be read: ", secret.status().message()));
    }
    absl::StatusOr<Secrets> files = secret->SecretMap({"data"});
    if (!files.ok()) return Missing(pod, "the Secret of the access has no data that can be read");
    granted.files = *std::move(files);
  }
  granted.access = *std::move(object);
  return granted;
}

absl::Status PodAccess::Hold(const Object& access, const Pod& pod) {
  bool ends = false;
  const absl::StatusOr<Object> held =
      Change(client_, kBucketAccesses, access, Part::kObject, [&](Object& changed) {
        ends = changed.being_deleted();
        return !ends && AddFinalizer(changed, PodFinalizer(pod.uid));
      });
  if (absl::IsNotFound(held.status()) || ends) return Missing(pod, "the access is being deleted");
  return held.status();
}

absl::Status PodAccess::Release(const std::string& access, std::string_view pod_uid) {
  const absl::StatusOr<Object> object = client_.Get(kBucketAccesses, "", access);
  if (absl::IsNotFound(object.status())) return absl::OkStatus();
  if (!object.ok()) return object.status();
  const absl::Status released =
      Change(client_, kBucketAccesses, *object, Part::kObject, [&](Object& changed) {
        return RemoveFinalizer(changed, PodFinalizer(pod_uid));
      }).status();
  return absl::IsNotFound(released) ? absl::OkStatus() : released;
}

}  // namespace cbt::kube::cosi

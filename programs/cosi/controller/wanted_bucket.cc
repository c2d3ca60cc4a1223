#include "programs/cosi/controller/wanted_bucket.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cbt::kube::cosi {

bool WantedBucket::Allows(const Bucket& bucket, std::string_view name_space) {
  if (!bucket.has_allowed_namespaces) {
    return !bucket.request.empty() && bucket.request.name_space == name_space;
  }
  return std::find(bucket.allowed_namespaces.begin(), bucket.allowed_namespaces.end(),
                   name_space) != bucket.allowed_namespaces.end();
}

absl::StatusOr<Bucket> WantedBucket::FindByRequest(const BucketAccessRequest& request) const {
  const Subject subject = SubjectOf(kBucketAccessRequests, request.meta);
  const auto named =
      tools_.client.Get<BucketRequest>(request.meta.name_space, request.request_name);
  if (absl::IsNotFound(named.status())) {
    return Wait(tools_.events, subject, "NoBucketRequest",
                absl::StrCat("BucketRequest ", request.request_name, " does not exist"));
  }
  if (!named.ok()) return named.status();
  if (named->meta.deletion_timestamp.has_value()) {
    return Wait(tools_.events, subject, "BucketGoes",
                absl::StrCat("BucketRequest ", request.request_name, " is being deleted"));
  }
  if (named->bucket_name.empty() || !named->available) {
    return Wait(tools_.events, subject, "BucketNotAvailable",
                absl::StrCat("BucketRequest ", request.request_name, " has no bucket yet"));
  }
  absl::StatusOr<Bucket> bucket = tools_.client.Get<Bucket>("", named->bucket_name);
  if (!bucket.ok() && !absl::IsNotFound(bucket.status())) return bucket;
  if (!bucket.ok() || bucket->request.uid != named->meta.uid) {
    return Wait(tools_.events, subject, "BucketLost",
                absl::StrCat("the Bucket of BucketRequest ", request.request_name, " is gone"));
  }
  return bucket;
}

absl::StatusOr<Bucket> WantedBucket::FindByName(const BucketAccessRequest& request) const {
  absl::StatusOr<Bucket> bucket = tools_.client.Get<Bucket>("", request.bucket_name);
  if (!bucket.ok() && !absl::IsNotFound(bucket.status())) return bucket;
  if (!bucket.ok() || !Allows(*bucket, request.meta.name_space)) {
    return Wait(
        tools_.events, SubjectOf(kBucketAccessRequests, request.meta), "BucketNotAllowed",
        absl::StrCat("Bucket ", request.bucket_name,
                     " does not exist, or does not allow namespace ", request.meta.name_space));
  }
  return bucket;
}

absl::StatusOr<Bucket> WantedBucket::Find(const BucketAccessRequest& request) const {
  absl::StatusOr<Bucket> bucket =
      request.request_name.empty() ? FindByName(request) : FindByRequest(request);
  if (!bucket.ok()) return bucket;
  const Subject subject = SubjectOf(kBucketAccessRequests, request.meta);
  if (bucket->meta.deletion_timestamp.has_value()) {
    return Wait(tools_.events, subject, "BucketGoes",
                absl::StrCat("Bucket ", bucket->meta.name, " is being deleted"));
  }
  if (!bucket->available) {
    return Wait(tools_.events, subject, "BucketNotAvailable",
                absl::StrCat("Bucket ", bucket->meta.name, " is not available"));
  }
  return bucket;
}

}  // namespace cbt::kube::cosi

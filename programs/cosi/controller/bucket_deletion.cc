#include "programs/cosi/controller/bucket_deletion.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cbt/kube/status.h"

namespace cbt::kube::cosi {
namespace {

// The bucket's ID, for the revocation of this access after the Bucket is gone (S7).
absl::Status KeepBucketId(Client& client, const Object& access, const std::string& id) {
  if (id.empty()) return absl::OkStatus();
  return IfThere(Change(client, kBucketAccesses, access, Part::kObject, [&](Object& changed) {
                   if (changed.annotation(kBucketIdAnnotation).has_value()) return false;
                   changed.SetString({"metadata", "annotations", kBucketIdAnnotation}, id);
                   return true;
                 }).status());
}

// What the bucket's owner can do: requests of its own namespace by name, the others by their number,
// as their names are none of its business.
std::string RemedyOf(const std::vector<ObjectPtr>& accesses, const std::string& name_space) {
  constexpr size_t kMostNames = 5;
  std::vector<std::string> names;
  size_t others = 0;
  for (const ObjectPtr& object : accesses) {
    const absl::StatusOr<BucketAccess> access = BucketAccess::Decode(*object);
    if (access.ok() && access->request.name_space == name_space && names.size() < kMostNames) {
      names.push_back(access->request.name);
    } else {
      ++others;
    }
  }
  if (names.empty()) {
    return others > 0 ? absl::StrCat("; ", others, " in other namespaces have access") : "";
  }
  if (others > 0) names.push_back(absl::StrCat(others, " more"));
  return absl::StrCat("; delete BucketAccessRequest ", absl::StrJoin(names, ", "));
}

}  // namespace

absl::Status BucketDeletion::Run(const BucketRequest& request, const Object& object) {
  if (!HasFinalizer(request.meta, kRequestFinalizer) &&
      !HasFinalizer(request.meta, kRequestFinalizerShort)) {
    return absl::OkStatus();
  }
  std::vector<std::string> names = {request.bucket_name};
  if (request.bucket_name.empty()) {
    names = {BucketNameOf(request)};
    // An administrator's may have been bound before the request could name it.
    for (const ObjectPtr& bucket : tools_.watched.BucketsFor(request.meta)) {
      if (bucket->name() != names.front()) names.emplace_back(bucket->name());
    }
  }
  for (const std::string& name : names) {
    const absl::StatusOr<Object> found = tools_.client.Get(kBuckets, "", name);
    if (absl::IsNotFound(found.status())) continue;
    if (!found.ok()) return found.status();
    const absl::StatusOr<Bucket> bucket = Bucket::Decode(*found);
    if (!bucket.ok()) return bucket.status();
    // Retained by a former try, or never of this request.
    if (bucket->request.uid != request.meta.uid) continue;
    if (bucket->deletion_policy != kRetain && !bucket->provisioner.empty()) {
      return Delete(request, *bucket);
    }
    if (absl::Status status = Retain(request, *bucket, *found); !status.ok()) return status;
  }
  return Release(object);
}

absl::Status BucketDeletion::Retain(const BucketRequest& request, const Bucket& bucket,
                                    const Object& object) {
  for (const ObjectPtr& access : tools_.watched.AccessesTo(bucket.meta.name)) {
    if (absl::Status kept = KeepBucketId(tools_.client, *access, bucket.id()); !kept.ok()) {
      return kept;
    }
  }
  // First: from here on there is no new access.
  const absl::StatusOr<Object> closed =
      Change(tools_.client, kBuckets, object, Part::kStatus, [](Object& changed) {
        if (!changed.Bool({"status", "bucketAvailable"}).value_or(true)) return false;
        changed.SetBool({"status", "bucketAvailable"}, false);
        return true;
      });
  if (!closed.ok()) return IfThere(closed.status());
  const absl::StatusOr<Object> freed =
      Change(tools_.client, kBuckets, *closed, Part::kObject, [](Object& changed) {
        const bool bound = changed.Has({"spec", "bucketRequest"});
        changed.Remove({"spec", "bucketRequest"});
        return RemoveAllFinalizers(changed) || bound;
      });
  if (!freed.ok()) return IfThere(freed.status());
  tools_.events.Note(SubjectOf(kBuckets, bucket.meta), "Retained",
                     absl::StrCat("BucketRequest ", request.meta.name_space, "/", request.meta.name,
                                  " was deleted; the bucket stays"));
  return absl::OkStatus();
}

absl::Status BucketDeletion::Delete(const BucketRequest& request, const Bucket& bucket) {
  if (!bucket.meta.deletion_timestamp.has_value()) {
    DeleteOptions options;
    options.uid = bucket.meta.uid;
    const absl::Status deleted = tools_.client.Delete(kBuckets, "", bucket.meta.name, options);
    if (!deleted.ok() && !absl::IsNotFound(deleted) && !IsConflict(deleted)) return deleted;
  }
  if (bucket.deletion_policy == kDelete && HasAccessors(bucket.meta)) {
    tools_.events.Warn(
        SubjectOf(kBucketRequests, request.meta), "BucketInUse",
        absl::StrCat(
            "Bucket ", bucket.meta.name, " is deleted after the last access to it",
            RemedyOf(tools_.watched.AccessesTo(bucket.meta.name), request.meta.name_space)));
  } else {
    AwaitDriver(tools_, kBucketRequests, request.meta, bucket.provisioner,
                bucket.meta.deletion_timestamp, absl::StrCat("deleted Bucket ", bucket.meta.name));
  }
  // The Bucket's end wakes the request.
  return absl::OkStatus();
}

absl::Status BucketDeletion::Release(const Object& object) {
  const absl::StatusOr<Object> released =
      Change(tools_.client, kBucketRequests, object, Part::kObject, [](Object& changed) {
        const bool longer = RemoveFinalizer(changed, kRequestFinalizer);
        return RemoveFinalizer(changed, kRequestFinalizerShort) || longer;
      });
  if (!released.ok()) return IfThere(released.status());
  ++tools_.counters.buckets_released;
  return absl::OkStatus();
}

}  // namespace cbt::kube::cosi

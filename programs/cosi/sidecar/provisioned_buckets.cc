#include "programs/cosi/sidecar/provisioned_buckets.h"

namespace cbt::kube::cosi {
namespace {

std::string KeyOfBucket(const Bucket& bucket) { return "Bucket/" + bucket.meta.name; }

}  // namespace

absl::Status ProvisionedBuckets::Reconcile(const std::string& name) {
  const absl::StatusOr<Object> object = tools_.client.Get(kBuckets, "", name);
  if (!object.ok()) return FineIfGone(object.status());
  const absl::StatusOr<Bucket> bucket = Bucket::Decode(*object);
  if (!bucket.ok()) return bucket.status();
  if (bucket->provisioner != tools_.driver_name) return absl::OkStatus();
  if (object->being_deleted()) return Delete(*bucket, *object);
  return bucket->bucket_id.empty() ? Provision(*bucket, *object) : absl::OkStatus();
}

absl::Status ProvisionedBuckets::Provision(const Bucket& bucket, const Object& object) {
  if (!bucket.given_id.empty()) return Store(object, bucket.given_id);
  const Subject subject = SubjectOf(kBuckets, bucket.meta);
  const Subject request = SubjectOf(kBucketRequests, bucket.request);
  if (bucket.request.empty()) {
    tools_.events.Warn(subject, "NoBucketID",
                       "no request has made this Bucket: spec.bucketID names its bucket");
    return absl::OkStatus();
  }
  const absl::StatusOr<std::string> id =
      tools_.driver.CreateBucket(bucket.meta.name, bucket.protocol, bucket.parameters);
  if (!id.ok()) {
    return DriverFailed(tools_, KeyOfBucket(bucket), subject, request, "CreateFailed", id.status());
  }
  tools_.log.Write(rpc::LogLevel::kInfo, "bucket created",
                   {{.key = "bucket", .value = bucket.meta.name}, {.key = "id", .value = *id}});
  return Store(object, *id);
}

absl::Status ProvisionedBuckets::Store(const Object& object, const std::string& id) {
  return FineIfGone(Change(tools_.client, kBuckets, object, Part::kStatus, [&id](Object& changed) {
                      if (changed.Has({"status", "bucketID"})) return false;
                      changed.SetString({"status", "bucketID"}, id);
                      // One that was retained meanwhile has no request any more.
                      changed.SetBool({"status", "bucketAvailable"},
                                      changed.Has({"spec", "bucketRequest"}) ||
                                          changed.Has({"spec", "bucketID"}));
                      return true;
                    }).status());
}

absl::Status ProvisionedBuckets::Delete(const Bucket& bucket, const Object& object) {
  if (!HasFinalizer(bucket.meta, kBucketFinalizer) || HasAccessors(bucket.meta)) {
    return absl::OkStatus();
  }
  const bool keep =
      bucket.deletion_policy == kRetain || bucket.request.empty() || !bucket.given_id.empty();
  if (!keep) {
    const Subject subject = SubjectOf(kBuckets, bucket.meta);
    const Subject request = SubjectOf(kBucketRequests, bucket.request);
    std::string id = bucket.bucket_id;
    if (id.empty()) {
      const absl::StatusOr<std::string> made =
          tools_.driver.CreateBucket(bucket.meta.name, bucket.protocol, bucket.parameters);
      if (!made.ok() && IsWorthRetry(made.status())) {
        return DriverFailed(tools_, KeyOfBucket(bucket), subject, request, "DeleteFailed",
                            made.status());
      }
      // A driver that refuses to create it has none.
      if (made.ok()) id = *made;
    }
    if (!id.empty()) {
      const absl::Status deleted = tools_.driver.DeleteBucket(id);
      if (!deleted.ok()) {
        return DriverFailed(tools_, KeyOfBucket(bucket), subject, request, "DeleteFailed", deleted);
      }
      tools_.log.Write(rpc::LogLevel::kInfo, "bucket deleted",
                       {{.key = "bucket", .value = bucket.meta.name}, {.key = "id", .value = id}});
    }
  }
  return FineIfGone(Change(tools_.client, kBuckets, object, Part::kObject, [](Object& changed) {
                      return RemoveFinalizer(changed, kBucketFinalizer);
                    }).status());
}

}  // namespace cbt::kube::cosi

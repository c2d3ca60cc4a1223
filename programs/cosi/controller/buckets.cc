#include "programs/cosi/controller/buckets.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/kube/status.h"

namespace cbt::kube::cosi {
namespace {

// Between two looks at accesses that a forced deletion waits for.
constexpr std::chrono::seconds kLook{1};

std::chrono::milliseconds AgeOf(Time time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now() -
                                                               time);
}

}  // namespace

bool Buckets::IsSettled(const Key& key) const {
  const auto bucket = tools_.watched.Seen<Bucket>("", key.name);
  if (!bucket.has_value() || bucket->meta.deletion_timestamp.has_value() ||
      bucket->provisioner.empty()) {
    return false;
  }
  const auto label = bucket->meta.labels.find(std::string(kProvisionerLabel));
  if (label == bucket->meta.labels.end() || label->second != LabelValue(bucket->provisioner)) {
    return false;
  }
  std::set<std::string> accessors;
  for (const ObjectPtr& object : tools_.watched.AccessesTo(bucket->meta.name)) {
    const absl::StatusOr<ObjectMeta> meta = object->Meta();
    if (meta.ok()) accessors.insert(AccessorFinalizer(*meta));
  }
  return std::ranges::all_of(bucket->meta.finalizers, [&](const std::string& finalizer) {
    return !finalizer.starts_with(kAccessorFinalizerPrefix) || accessors.contains(finalizer);
  });
}

absl::Status Buckets::Reconcile(const Key& key) {
  if (IsSettled(key)) return absl::OkStatus();
  absl::StatusOr<Object> object = tools_.client.Get(kBuckets, "", key.name);
  if (!object.ok()) return IfThere(object.status());
  const absl::StatusOr<Bucket> bucket = Bucket::Decode(*object);
  if (!bucket.ok()) return bucket.status();
  if (object->being_deleted() && bucket->deletion_policy == kForceDelete) {
    if (absl::Status forced = Force(*bucket, key); !forced.ok()) return forced;
  }
  absl::StatusOr<Object> labelled = Label(*bucket, *std::move(object));
  if (!labelled.ok()) return IfThere(labelled.status());
  const absl::StatusOr<Object> now = DropAccessors(*bucket, *std::move(labelled));
  if (!now.ok()) return IfThere(now.status());
  return bucket->provisioner.empty() ? WithoutDriver(*bucket, *now) : absl::OkStatus();
}

absl::StatusOr<Object> Buckets::Label(const Bucket& bucket, Object object) {
  const std::string label = LabelValue(bucket.provisioner);
  if (label.empty() || object.label(kProvisionerLabel) == label) return object;
  return Change(tools_.client, kBuckets, object, Part::kObject, [&label](Object& changed) {
    changed.SetString({"metadata", "labels", kProvisionerLabel}, label);
    return true;
  });
}

absl::Status Buckets::Force(const Bucket& bucket, const Key& key) {
  bool waits = false;
  for (const ObjectPtr& object : tools_.watched.AccessesTo(bucket.meta.name)) {
    const absl::StatusOr<BucketAccess> access = BucketAccess::Decode(*object);
    if (!access.ok()) return access.status();
    if (!object->being_deleted()) {
      DeleteOptions options;
      options.uid = access->meta.uid;
      const absl::Status deleted =
          tools_.client.Delete(kBucketAccesses, "", access->meta.name, options);
      if (!deleted.ok() && !absl::IsNotFound(deleted) && !IsConflict(deleted)) return deleted;
      waits = true;
      continue;
    }
    const bool revoked = !HasFinalizer(access->meta, kAccessFinalizer);
    if (!revoked && AgeOf(*access->meta.deletion_timestamp) < tools_.options.revoke_time) {
      waits = true;
      continue;
    }
    if (absl::Status stripped = Strip(bucket, *access, *object); !stripped.ok()) return stripped;
  }
  if (waits) tools_.wake_later(key.ToString(), kLook);
  return absl::OkStatus();
}

absl::Status Buckets::Strip(const Bucket& bucket, const BucketAccess& access,
                            const Object& object) {
  bool revoked = true;
  const absl::StatusOr<Object> stripped =
      Change(tools_.client, kBucketAccesses, object, Part::kObject, [&revoked](Object& changed) {
        revoked = !RemoveFinalizer(changed, kAccessFinalizer);
        return RemoveAllFinalizers(changed) || !revoked;
      });
  if (!stripped.ok()) return IfThere(stripped.status());
  ++tools_.counters.stripped;
  if (!revoked) {
    tools_.events.Warn(SubjectOf(kBuckets, bucket.meta), "NotRevoked",
                       absl::StrCat("the driver did not revoke BucketAccess ", access.meta.name,
                                    " in time; it was removed all the same"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Buckets::AccessExists(const Bucket& bucket, const std::string& finalizer) {
  for (const ObjectPtr& object : tools_.watched.AccessesTo(bucket.meta.name)) {
    const absl::StatusOr<ObjectMeta> meta = object->Meta();
    if (meta.ok() && AccessorFinalizer(*meta) == finalizer) return true;
  }
  // The watch may lag behind.
  const std::string name = finalizer.substr(kAccessorFinalizerPrefix.size());
  const absl::StatusOr<Object> access = tools_.client.Get(kBucketAccesses, "", name);
  if (access.ok()) return true;
  if (!absl::IsNotFound(access.status())) return access.status();
  // It may stand for a uid (S19).
  const absl::StatusOr<ObjectList> all = tools_.client.ListAll(kBucketAccesses, "");
  if (!all.ok()) return all.status();
  for (const Object& one : all->items) {
    if (one.uid() == name) return true;
  }
  return false;
}

absl::StatusOr<Object> Buckets::DropAccessors(const Bucket& bucket, Object object) {
  std::vector<std::string> gone;
  for (const std::string& finalizer : bucket.meta.finalizers) {
    if (!finalizer.starts_with(kAccessorFinalizerPrefix)) continue;
    const absl::StatusOr<bool> exists = AccessExists(bucket, finalizer);
    if (!exists.ok()) return exists.status();
    if (!*exists) gone.push_back(finalizer);
  }
  if (gone.empty()) return object;
  return Change(tools_.client, kBuckets, object, Part::kObject, [&gone](Object& changed) {
    bool edited = false;
    for (const std::string& finalizer : gone) {
      edited = RemoveFinalizer(changed, finalizer) || edited;
    }
    return edited;
  });
}

absl::Status Buckets::WithoutDriver(const Bucket& bucket, const Object& object) {
  if (object.being_deleted()) {
    const absl::StatusOr<Bucket> now = Bucket::Decode(object);
    if (!now.ok()) return now.status();
    if (HasAccessors(now->meta)) return absl::OkStatus();
    return IfThere(Change(tools_.client, kBuckets, object, Part::kObject, [](Object& changed) {
                     return RemoveFinalizer(changed, kBucketFinalizer);
                   }).status());
  }
  // Once: a bucket that was retained has an ID, and stays unavailable.
  const std::string& id = bucket.given_id.empty() ? bucket.meta.name : bucket.given_id;
  return IfThere(Change(tools_.client, kBuckets, object, Part::kStatus, [&id](Object& changed) {
                   if (changed.Has({"status", "bucketID"})) return false;
                   changed.SetString({"status", "bucketID"}, id);
                   changed.SetBool({"status", "bucketAvailable"}, true);
                   return true;
                 }).status());
}

}  // namespace cbt::kube::cosi

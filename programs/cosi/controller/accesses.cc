#include "programs/cosi/controller/accesses.h"

#include <string>

namespace cbt::kube::cosi {

bool Accesses::IsSettled(const Key& key) const {
  const auto access = tools_.watched.Seen<BucketAccess>("", key.name);
  return access.has_value() && !access->meta.deletion_timestamp.has_value() &&
         access->meta.labels.contains(std::string(kProvisionerLabel)) &&
         access->meta.annotations.contains(std::string(kBucketIdAnnotation));
}

absl::Status Accesses::Reconcile(const Key& key) {
  if (IsSettled(key)) return absl::OkStatus();
  const absl::StatusOr<Object> object = tools_.client.Get(kBucketAccesses, "", key.name);
  if (!object.ok()) return IfThere(object.status());
  const absl::StatusOr<BucketAccess> access = BucketAccess::Decode(*object);
  if (!access.ok()) return access.status();
  const bool has_driver = object->label(kProvisionerLabel).has_value();
  if (object->being_deleted()) return has_driver ? absl::OkStatus() : EndWithoutDriver(*object);
  // Nothing is missing of one that this controller has made.
  if (has_driver && object->annotation(kBucketIdAnnotation).has_value()) return absl::OkStatus();
  const absl::StatusOr<Bucket> bucket = tools_.client.Get<Bucket>("", access->bucket_name);
  if (!bucket.ok()) return IfThere(bucket.status());
  if (bucket->provisioner.empty()) return GrantWithoutDriver(*bucket, *access, *object);
  return Equip(*bucket, *object);
}

absl::Status Accesses::Equip(const Bucket& bucket, const Object& object) {
  const auto edit = [&bucket](Object& changed) {
    if (changed.being_deleted()) return false;
    bool edited = AddFinalizer(changed, kAccessFinalizer);
    const std::string label = LabelValue(bucket.provisioner);
    if (changed.label(kProvisionerLabel) != label) {
      changed.SetString({"metadata", "labels", kProvisionerLabel}, label);
      edited = true;
    }
    if (!changed.annotation(kBucketIdAnnotation).has_value() && !bucket.id().empty()) {
      changed.SetString({"metadata", "annotations", kBucketIdAnnotation}, bucket.id());
      edited = true;
    }
    return edited;
  };
  return IfThere(Change(tools_.client, kBucketAccesses, object, Part::kObject, edit).status());
}

absl::Status Accesses::GrantWithoutDriver(const Bucket& bucket, const BucketAccess& access,
                                          const Object& object) {
  // Bound by both sides, and held on the Bucket.
  if (access.request.uid.empty() || !HasFinalizer(bucket.meta, AccessorFinalizer(access.meta))) {
    return absl::OkStatus();
  }
  const auto edit = [&access](Object& changed) {
    if (changed.Bool({"status", "accessGranted"}).value_or(false)) return false;
    changed.SetBool({"status", "accessGranted"}, true);
    if (!access.wanted_account.empty()) {
      changed.SetString({"status", "accountID"}, access.wanted_account);
    }
    if (!access.given_credentials.empty()) {
      changed.SetString({"status", "credentials", "name"}, access.given_credentials.name);
      changed.SetString({"status", "credentials", "namespace"},
                        access.given_credentials.name_space);
    }
    return true;
  };
  return IfThere(Change(tools_.client, kBucketAccesses, object, Part::kStatus, edit).status());
}

absl::Status Accesses::EndWithoutDriver(const Object& object) {
  return IfThere(Change(tools_.client, kBucketAccesses, object, Part::kObject, [](Object& changed) {
                   return RemoveFinalizer(changed, kAccessFinalizer);
                 }).status());
}

}  // namespace cbt::kube::cosi

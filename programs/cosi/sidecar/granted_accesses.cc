#include "programs/cosi/sidecar/granted_accesses.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "programs/cosi/sidecar/credentials.h"

namespace cbt::kube::cosi {
namespace {

// What the RPC has no field for (C14): the cloud identity that gets the access.
constexpr char kServiceAccountName[] = "objectstorage.k8s.io/service-account-name";
constexpr char kServiceAccountNamespace[] = "objectstorage.k8s.io/service-account-namespace";

std::string KeyOfAccess(const BucketAccess& access) { return "BucketAccess/" + access.meta.name; }

std::string BucketIdOf(const BucketAccess& access) {
  const auto found = access.meta.annotations.find(std::string(kBucketIdAnnotation));
  return found == access.meta.annotations.end() ? "" : found->second;
}

}  // namespace

absl::Status GrantedAccesses::Reconcile(const std::string& name) {
  const absl::StatusOr<Object> object = tools_.client.Get(kBucketAccesses, "", name);
  if (!object.ok()) return FineIfGone(object.status());
  if (object->label(kProvisionerLabel) != LabelValue(tools_.driver_name)) return absl::OkStatus();
  const absl::StatusOr<BucketAccess> access = BucketAccess::Decode(*object);
  if (!access.ok()) return access.status();
  if (object->being_deleted()) return End(*access, *object);
  return Grant(*access, *object);
}

bool GrantedAccesses::HasSecret(const BucketAccess& access) const {
  const absl::StatusOr<Object> secret =
      tools_.client.Get(kSecrets, access.credentials.name_space, access.credentials.name);
  // What can't be read now is not made anew.
  return !absl::IsNotFound(secret.status());
}

absl::Status GrantedAccesses::Grant(const BucketAccess& access, const Object& object) {
  if (access.granted && HasSecret(access)) return absl::OkStatus();
  const absl::StatusOr<Bucket> bucket = tools_.client.Get<Bucket>("", access.bucket_name);
  if (!bucket.ok() && !absl::IsNotFound(bucket.status())) return bucket.status();
  const Subject subject = SubjectOf(kBucketAccesses, access.meta);
  // Its coming wakes the access; so does every change that is waited for below.
  if (!bucket.ok()) {
    tools_.events.Warn(subject, "NoBucket",
                       absl::StrCat("Bucket ", access.bucket_name, " does not exist"));
    return absl::OkStatus();
  }
  if (bucket->provisioner != tools_.driver_name) {
    tools_.events.Warn(
        subject, "OtherDriver",
        absl::StrCat("Bucket ", access.bucket_name, " is not of driver ", tools_.driver_name));
    return absl::OkStatus();
  }
  if (!access.granted && (bucket->meta.deletion_timestamp.has_value() || !bucket->available ||
                          !HasFinalizer(bucket->meta, AccessorFinalizer(access.meta)))) {
    return absl::OkStatus();
  }
  if (const std::string id = BucketIdOf(access); !id.empty() && id != bucket->id()) {
    tools_.events.Warn(
        subject, "OtherBucket",
        absl::StrCat("Bucket ", access.bucket_name, " stands for another bucket now"));
    return absl::OkStatus();
  }
  return GrantOf(*bucket, access, object);
}

absl::StatusOr<GrantAnswer> GrantedAccesses::CallGrant(const std::string& bucket_id,
                                                       const BucketAccess& access) {
  Parameters parameters = access.parameters;
  if (!access.service_account.empty()) {
    parameters[kServiceAccountName] = access.service_account.name;
    parameters[kServiceAccountNamespace] = access.service_account.name_space;
  }
  absl::StatusOr<GrantAnswer> granted =
      tools_.driver.Grant(bucket_id, access.account_name(), access.policy, parameters);
  if (granted.ok() && granted->account_id.empty()) granted->account_id = access.account_name();
  return granted;
}

absl::Status GrantedAccesses::GrantOf(const Bucket& bucket, const BucketAccess& access,
                                      const Object& object) {
  const Subject subject = SubjectOf(kBucketAccesses, access.meta);
  const absl::StatusOr<Object> secret = secrets_.Reserve(access, bucket.id());
  if (absl::IsAlreadyExists(secret.status())) {
    tools_.events.Warn(subject, "SecretTaken", std::string(secret.status().message()));
    tools_.wake_later(KeyOfAccess(access), kSeldom);
    return absl::OkStatus();
  }
  if (!secret.ok()) return secret.status();
  const absl::StatusOr<Object> noted =
      Change(tools_.client, kBucketAccesses, object, Part::kStatus, [&](Object& changed) {
        if (changed.being_deleted() || changed.Has({"status", "credentials", "name"})) return false;
        changed.SetString({"status", "credentials", "name"}, secret->name());
        changed.SetString({"status", "credentials", "namespace"}, secret->name_space());
        return true;
      });
  if (!noted.ok()) return FineIfGone(noted.status());
  // Its end is on its way here, and begins anew.
  if (noted->being_deleted()) return absl::OkStatus();
  const absl::StatusOr<GrantAnswer> granted = CallGrant(bucket.id(), access);
  if (!granted.ok()) {
    return DriverFailed(tools_, KeyOfAccess(access), subject,
                        SubjectOf(kBucketAccessRequests, access.request), "GrantFailed",
                        granted.status());
  }
  const Secrets data = SecretData(bucket.id(), bucket.protocol, granted->credentials);
  if (absl::Status filled = secrets_.Fill(*secret, granted->account_id, data); !filled.ok()) {
    return filled;
  }
  const absl::Status stored =
      Change(tools_.client, kBucketAccesses, *noted, Part::kStatus, [&](Object& changed) {
        changed.SetString({"status", "accountID"}, granted->account_id);
        changed.SetBool({"status", "accessGranted"}, true);
        return true;
      }).status();
  if (!stored.ok()) return FineIfGone(stored);
  tools_.log.Write(
      rpc::LogLevel::kInfo, "access granted",
      {{.key = "access", .value = access.meta.name}, {.key = "bucket", .value = bucket.id()}});
  return absl::OkStatus();
}

absl::Status GrantedAccesses::RevokeOnce(const BucketAccess& access, const std::string& bucket_id) {
  std::string account = access.account_id;
  if (account.empty()) {
    // The driver may have granted it before that could be stored: asked again, it says whom.
    const absl::StatusOr<GrantAnswer> granted = CallGrant(bucket_id, access);
    if (granted.ok()) {
      account = granted->account_id;
    } else if (IsWorthRetry(granted.status()) && !absl::IsNotFound(granted.status())) {
      return granted.status();
    } else {
      account = access.account_name();
    }
  }
  return tools_.driver.Revoke(bucket_id, account);
}

absl::Status GrantedAccesses::End(const BucketAccess& access, const Object& object) {
  if (!HasFinalizer(access.meta, kAccessFinalizer)) return absl::OkStatus();
  const bool asked = access.granted || !access.credentials.empty() || !access.account_id.empty();
  if (asked) {
    const Subject subject = SubjectOf(kBucketAccesses, access.meta);
    std::string bucket_id = BucketIdOf(access);
    if (bucket_id.empty()) {
      const absl::StatusOr<Bucket> bucket = tools_.client.Get<Bucket>("", access.bucket_name);
      if (!bucket.ok() && !absl::IsNotFound(bucket.status())) return bucket.status();
      if (bucket.ok() && bucket->provisioner == tools_.driver_name) bucket_id = bucket->id();
    }
    if (bucket_id.empty()) {
      tools_.events.Warn(subject, "NotRevoked",
                         "nothing says which bucket it was for: revoke the account in the backend");
    } else if (absl::Status revoked = RevokeOnce(access, bucket_id); !revoked.ok()) {
      return DriverFailed(tools_, KeyOfAccess(access), subject,
                          SubjectOf(kBucketAccessRequests, access.request), "RevokeFailed",
                          revoked);
    }
    tools_.log.Write(rpc::LogLevel::kInfo, "access revoked",
                     {{.key = "access", .value = access.meta.name}});
  }
  if (absl::Status removed = secrets_.Remove(access.meta.name, access.meta.uid); !removed.ok()) {
    return removed;
  }
  return FineIfGone(
      Change(tools_.client, kBucketAccesses, object, Part::kObject, [](Object& changed) {
        return RemoveFinalizer(changed, kAccessFinalizer);
      }).status());
}

absl::Status GrantedAccesses::ReconcileSecret(const std::string& name) {
  const absl::StatusOr<Object> secret = tools_.client.Get(kSecrets, tools_.name_space, name);
  if (absl::IsNotFound(secret.status())) return Reconcile(name);
  if (!secret.ok()) return secret.status();
  const auto uid = secret->label(kAccessUidLabel);
  const auto access_name = secret->annotation(kAccessAnnotation);
  if (!uid.has_value() || !access_name.has_value() ||
      secret->label(kProvisionerLabel) != LabelValue(tools_.driver_name)) {
    return absl::OkStatus();
  }
  const absl::StatusOr<Object> access = tools_.client.Get(kBucketAccesses, "", *access_name);
  if (!access.ok() && !absl::IsNotFound(access.status())) return access.status();
  if (access.ok() && access->uid() == *uid) return absl::OkStatus();
  // It was removed by force, before the driver could revoke it (S6).
  const auto bucket_id = secret->annotation(kBucketIdAnnotation);
  const auto account_id = secret->annotation(kAccountIdAnnotation);
  if (bucket_id.has_value() && account_id.has_value()) {
    const absl::Status revoked =
        tools_.driver.Revoke(std::string(*bucket_id), std::string(*account_id));
    if (!revoked.ok()) {
      tools_.log.Failed("access that was removed by force not revoked", revoked);
      return revoked;
    }
  }
  return secrets_.Remove(name, std::string(*uid));
}

}  // namespace cbt::kube::cosi

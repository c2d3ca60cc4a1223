#include "programs/cosi/sidecar/access_secrets.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/kube/status.h"

namespace cbt::kube::cosi {
namespace {

absl::Status NotOurs(const std::string& name_space, const std::string& name) {
  return absl::AlreadyExistsError(
      absl::StrCat("Secret ", name_space, "/", name, " is not of this access"));
}

}  // namespace

absl::StatusOr<Object> AccessSecrets::Reserve(const BucketAccess& access,
                                              const std::string& bucket_id) {
  ObjectMeta meta;
  meta.name = access.meta.name;
  meta.name_space = tools_.name_space;
  meta.labels[std::string(kAccessUidLabel)] = access.meta.uid;
  meta.labels[std::string(kProvisionerLabel)] = LabelValue(tools_.driver_name);
  meta.annotations[std::string(kAccessAnnotation)] = access.meta.name;
  meta.annotations[std::string(kBucketIdAnnotation)] = bucket_id;
  // Until the driver says otherwise.
  meta.annotations[std::string(kAccountIdAnnotation)] = access.account_name();
  Object secret("v1", "Secret");
  secret.SetMeta(meta);
  secret.SetString({"type"}, "Opaque");
  absl::StatusOr<Object> made = tools_.client.Create(kSecrets, secret);
  if (!absl::IsAlreadyExists(made.status())) return made;
  absl::StatusOr<Object> there = tools_.client.Get(kSecrets, tools_.name_space, meta.name);
  if (!there.ok()) return there;
  if (there->label(kAccessUidLabel) != access.meta.uid) {
    return NotOurs(tools_.name_space, meta.name);
  }
  return there;
}

absl::Status AccessSecrets::Fill(const Object& secret, const std::string& account_id,
                                 const Secrets& data) {
  const std::string uid(secret.label(kAccessUidLabel).value_or(""));
  bool ours = true;
  const absl::StatusOr<Object> filled =
      Change(tools_.client, kSecrets, secret, Part::kObject, [&](Object& changed) {
        ours = changed.label(kAccessUidLabel) == uid;
        if (!ours) return false;
        changed.Remove({"data"});
        data.ForEach([&changed](const std::string& key, std::string_view value) {
          changed.SetBytes({"data", key}, value);
        });
        changed.SetString({"metadata", "annotations", kAccountIdAnnotation}, account_id);
        return true;
      });
  if (filled.ok() && !ours) return NotOurs(tools_.name_space, std::string(secret.name()));
  return filled.status();
}

absl::Status AccessSecrets::Remove(const std::string& name, const std::string& access_uid) {
  const absl::StatusOr<Object> secret = tools_.client.Get(kSecrets, tools_.name_space, name);
  if (!secret.ok()) return FineIfGone(secret.status());
  if (secret->label(kAccessUidLabel) != access_uid) return absl::OkStatus();
  DeleteOptions options;
  options.uid = std::string(secret->uid());
  const absl::Status deleted = tools_.client.Delete(kSecrets, tools_.name_space, name, options);
  return IsConflict(deleted) ? absl::OkStatus() : FineIfGone(deleted);
}

}  // namespace cbt::kube::cosi

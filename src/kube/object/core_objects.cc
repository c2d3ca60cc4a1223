#include <utility>

#include "cbt/kube/typed_objects.h"
#include "kube/object/field_reader.h"

namespace cbt::kube {

absl::StatusOr<SecretObject> SecretObject::Decode(const Object& object) {
  SecretObject secret;
  FieldReader reader(object);
  reader.Read(object.Meta(), secret.meta);
  reader.Text({"type"}, secret.type);
  reader.Read(object.SecretMap({"data"}), secret.data);
  if (!reader.ok()) return reader.status();
  return secret;
}

Object SecretObject::Encode() const {
  Object object(kResource.ApiVersion(), kResource.kind);
  object.SetMeta(meta);
  if (!type.empty()) object.SetString({"type"}, type);
  data.ForEach([&](const std::string& key, std::string_view value) {
    object.SetBytes({"data", key}, value);
  });
  return object;
}

absl::StatusOr<ConfigMap> ConfigMap::Decode(const Object& object) {
  ConfigMap map;
  FieldReader reader(object);
  reader.Read(object.Meta(), map.meta);
  reader.Read(object.StringMap({"data"}), map.data);
  if (!reader.ok()) return reader.status();
  return map;
}

Object ConfigMap::Encode() const {
  Object object(kResource.ApiVersion(), kResource.kind);
  object.SetMeta(meta);
  if (!data.empty()) object.SetStringMap({"data"}, data);
  return object;
}

absl::StatusOr<Lease> Lease::Decode(const Object& object) {
  Lease lease;
  FieldReader reader(object);
  reader.Read(object.Meta(), lease.meta);
  reader.Text({"spec", "holderIdentity"}, lease.holder);
  reader.Read(object.OptionalInt({"spec", "leaseDurationSeconds"}), lease.duration_seconds);
  reader.Read(object.OptionalTime({"spec", "acquireTime"}), lease.acquire_time);
  reader.Read(object.OptionalTime({"spec", "renewTime"}), lease.renew_time);
  reader.Read(object.OptionalInt({"spec", "leaseTransitions"}), lease.transitions);
  if (!reader.ok()) return reader.status();
  return lease;
}

Object Lease::Encode() const {
  Object object(kResource.ApiVersion(), kResource.kind);
  WriteTo(object);
  return object;
}

void Lease::WriteTo(Object& object) const {
  object.SetMeta(meta);
  object.SetString({"spec", "holderIdentity"}, holder);
  const auto set_time = [&](std::string_view key, const std::optional<Time>& time) {
    if (time) {
      object.SetString({"spec", key}, FormatMicroTime(*time));
    } else {
      object.Remove({"spec", key});
    }
  };
  if (duration_seconds) {
    object.SetInt({"spec", "leaseDurationSeconds"}, *duration_seconds);
  } else {
    object.Remove({"spec", "leaseDurationSeconds"});
  }
  set_time("acquireTime", acquire_time);
  set_time("renewTime", renew_time);
  object.SetInt({"spec", "leaseTransitions"}, transitions);
}

}  // namespace cbt::kube

#include "programs/cluster/session_objects.h"

#include <utility>

#include "kube/object/field_reader.h"

namespace cbt::kube::cluster {
namespace {

Object NewObject(const Resource& resource, const ObjectMeta& meta) {
  Object object(resource.ApiVersion(), resource.kind);
  object.SetMeta(meta);
  return object;
}

void SetText(Object& object, const Path& path, const std::string& value) {
  if (value.empty()) {
    object.Remove(path);
  } else {
    object.SetString(path, value);
  }
}

void SetBytes(Object& object, const Path& path, const std::string& value) {
  if (value.empty()) {
    object.Remove(path);
  } else {
    object.SetBytes(path, value);
  }
}

}  // namespace

absl::StatusOr<SnapshotSessionRequest> SnapshotSessionRequest::Decode(const Object& object) {
  SnapshotSessionRequest request;
  FieldReader reader(object);
  reader.Read(object.Meta(), request.meta);
  reader.Read(object.Strings({"spec", "snapshots"}), request.snapshots);
  Status& status = request.status;
  reader.Text({"status", "sessionState"}, status.state);
  reader.Text({"status", "error"}, status.error);
  absl::StatusOr<std::optional<Time>> expires = object.OptionalTime({"status", "expiryTime"});
  if (expires.ok()) status.expires = *expires;
  reader.Read(object.Bytes({"status", "sessionToken"}), status.token);
  reader.Text({"status", "sessionURL"}, status.url);
  reader.Read(object.Bytes({"status", "caCert"}), status.ca);
  if (!reader.ok()) return reader.status();
  if (!expires.ok()) return expires.status();
  return request;
}

void SnapshotSessionRequest::WriteStatus(Object& object) const {
  object.SetString({"status", "sessionState"}, status.state);
  SetText(object, {"status", "error"}, status.error);
  if (status.expires) {
    object.SetString({"status", "expiryTime"}, FormatTime(*status.expires));
  } else {
    object.Remove({"status", "expiryTime"});
  }
  SetBytes(object, {"status", "sessionToken"}, status.token);
  SetText(object, {"status", "sessionURL"}, status.url);
  SetBytes(object, {"status", "caCert"}, status.ca);
}

absl::StatusOr<SnapshotSessionData> SnapshotSessionData::Decode(const Object& object) {
  SnapshotSessionData data;
  FieldReader reader(object);
  reader.Read(object.Meta(), data.meta);
  reader.Read(object.String({"spec", "snapshotNamespace"}), data.snapshot_namespace);
  reader.Read(object.Strings({"spec", "snapshots"}), data.snapshots);
  if (!reader.ok()) return reader.status();
  absl::StatusOr<std::optional<Time>> time = object.OptionalTime({"spec", "expiryTime"});
  if (!time.ok()) return time.status();
  // A session without an end would never end.
  if (!time->has_value()) return absl::InvalidArgumentError("spec.expiryTime is missing");
  data.expires = **time;
  return data;
}

Object SnapshotSessionData::Encode() const {
  Object object = NewObject(kResource, meta);
  object.SetString({"spec", "snapshotNamespace"}, snapshot_namespace);
  object.SetStrings({"spec", "snapshots"}, snapshots);
  object.SetString({"spec", "expiryTime"}, FormatTime(expires));
  return object;
}

absl::StatusOr<SnapshotServicesConfiguration> SnapshotServicesConfiguration::Decode(
    const Object& object) {
  SnapshotServicesConfiguration configuration;
  FieldReader reader(object);
  reader.Read(object.Meta(), configuration.meta);
  reader.Text({"spec", "address"}, configuration.address);
  reader.Read(object.Bytes({"spec", "caCert"}), configuration.ca);
  reader.Text({"spec", "driverNamespace"}, configuration.driver_namespace);
  if (!reader.ok()) return reader.status();
  return configuration;
}

Object SnapshotServicesConfiguration::Encode() const {
  Object object = NewObject(kResource, meta);
  object.SetString({"spec", "address"}, address);
  object.SetBytes({"spec", "caCert"}, ca);
  object.SetString({"spec", "driverNamespace"}, driver_namespace);
  return object;
}

}  // namespace cbt::kube::cluster

#include <utility>

#include "cbt/kube/typed_objects.h"
#include "kube/object/field_reader.h"

namespace cbt::kube {
namespace {

Object NewObject(const Resource& resource, const ObjectMeta& meta) {
  Object object(resource.ApiVersion(), resource.kind);
  object.SetMeta(meta);
  return object;
}

void SetText(Object& object, const Path& path, const std::optional<std::string>& value) {
  if (value) object.SetString(path, *value);
}

// What both kinds of snapshots say of their last failure.
absl::StatusOr<std::optional<std::string>> ErrorOf(const Object& object) {
  if (!object.Has({"status", "error"})) return std::optional<std::string>();
  absl::StatusOr<std::optional<std::string>> message =
      object.OptionalString({"status", "error", "message"});
  if (message.ok() && !message->has_value()) *message = std::string();
  return message;
}

}  // namespace

absl::StatusOr<VolumeSnapshot> VolumeSnapshot::Decode(const Object& object) {
  VolumeSnapshot snapshot;
  FieldReader reader(object);
  reader.Read(object.Meta(), snapshot.meta);
  reader.Read(object.OptionalString({"spec", "source", "persistentVolumeClaimName"}),
              snapshot.source_claim);
  reader.Read(object.OptionalString({"spec", "source", "volumeSnapshotContentName"}),
              snapshot.source_content);
  reader.Read(object.OptionalString({"spec", "volumeSnapshotClassName"}), snapshot.class_name);
  if (object.Has({"status"})) {
    Status status;
    reader.Read(object.OptionalString({"status", "boundVolumeSnapshotContentName"}),
                status.bound_content);
    reader.Read(object.OptionalTime({"status", "creationTime"}), status.creation_time);
    reader.Read(object.OptionalBool({"status", "readyToUse"}), status.ready_to_use);
    reader.Read(object.OptionalString({"status", "restoreSize"}), status.restore_size);
    reader.Read(ErrorOf(object), status.error);
    snapshot.status = std::move(status);
  }
  if (!reader.ok()) return reader.status();
  return snapshot;
}

Object VolumeSnapshot::Encode() const {
  Object object = NewObject(kResource, meta);
  SetText(object, {"spec", "source", "persistentVolumeClaimName"}, source_claim);
  SetText(object, {"spec", "source", "volumeSnapshotContentName"}, source_content);
  SetText(object, {"spec", "volumeSnapshotClassName"}, class_name);
  return object;
}

absl::StatusOr<VolumeSnapshotContent> VolumeSnapshotContent::Decode(const Object& object) {
  VolumeSnapshotContent content;
  FieldReader reader(object);
  reader.Read(object.Meta(), content.meta);
  reader.Text({"spec", "volumeSnapshotRef", "namespace"}, content.snapshot_namespace);
  reader.Text({"spec", "volumeSnapshotRef", "name"}, content.snapshot_name);
  reader.Text({"spec", "volumeSnapshotRef", "uid"}, content.snapshot_uid);
  reader.Text({"spec", "driver"}, content.driver);
  reader.Text({"spec", "deletionPolicy"}, content.deletion_policy);
  reader.Read(object.OptionalString({"spec", "volumeSnapshotClassName"}), content.class_name);
  reader.Read(object.OptionalString({"spec", "source", "volumeHandle"}),
              content.source_volume_handle);
  reader.Read(object.OptionalString({"spec", "source", "snapshotHandle"}),
              content.source_snapshot_handle);
  reader.Read(object.OptionalString({"spec", "sourceVolumeMode"}), content.source_volume_mode);
  if (object.Has({"status"})) {
    Status status;
    reader.Read(object.OptionalString({"status", "snapshotHandle"}), status.snapshot_handle);
    reader.Read(object.OptionalInt({"status", "creationTime"}), status.creation_time);
    reader.Read(object.OptionalInt({"status", "restoreSize"}), status.restore_size);
    reader.Read(object.OptionalBool({"status", "readyToUse"}), status.ready_to_use);
    reader.Read(ErrorOf(object), status.error);
    content.status = std::move(status);
  }
  if (!reader.ok()) return reader.status();
  return content;
}

Object VolumeSnapshotContent::Encode() const {
  Object object = NewObject(kResource, meta);
  const Path ref = {"spec", "volumeSnapshotRef"};
  Object reference(kVolumeSnapshots.ApiVersion(), kVolumeSnapshots.kind);
  reference.SetString({"namespace"}, snapshot_namespace);
  reference.SetString({"name"}, snapshot_name);
  if (!snapshot_uid.empty()) reference.SetString({"uid"}, snapshot_uid);
  object.SetChild(ref, reference);
  object.SetString({"spec", "driver"}, driver);
  object.SetString({"spec", "deletionPolicy"}, deletion_policy);
  SetText(object, {"spec", "volumeSnapshotClassName"}, class_name);
  SetText(object, {"spec", "source", "volumeHandle"}, source_volume_handle);
  SetText(object, {"spec", "source", "snapshotHandle"}, source_snapshot_handle);
  SetText(object, {"spec", "sourceVolumeMode"}, source_volume_mode);
  return object;
}

bool VolumeSnapshotClass::IsDefault() const {
  const auto found = meta.annotations.find("snapshot.storage.kubernetes.io/is-default-class");
  return found != meta.annotations.end() && found->second == "true";
}

absl::StatusOr<VolumeSnapshotClass> VolumeSnapshotClass::Decode(const Object& object) {
  VolumeSnapshotClass snapshot_class;
  FieldReader reader(object);
  reader.Read(object.Meta(), snapshot_class.meta);
  reader.Text({"driver"}, snapshot_class.driver);
  reader.Text({"deletionPolicy"}, snapshot_class.deletion_policy);
  reader.Read(object.StringMap({"parameters"}), snapshot_class.parameters);
  if (!reader.ok()) return reader.status();
  return snapshot_class;
}

Object VolumeSnapshotClass::Encode() const {
  Object object = NewObject(kResource, meta);
  object.SetString({"driver"}, driver);
  object.SetString({"deletionPolicy"}, deletion_policy);
  if (!parameters.empty()) object.SetStringMap({"parameters"}, parameters);
  return object;
}

absl::StatusOr<SnapshotMetadataService> SnapshotMetadataService::Decode(const Object& object) {
  SnapshotMetadataService service;
  FieldReader reader(object);
  reader.Read(object.Meta(), service.meta);
  reader.Text({"spec", "audience"}, service.audience);
  reader.Text({"spec", "address"}, service.address);
  reader.Read(object.Bytes({"spec", "caCert"}), service.ca);
  std::optional<bool> requires_base;
  reader.Read(object.OptionalBool({"spec", "requireBaseSnapshotForDelta"}), requires_base);
  service.requires_base = requires_base.value_or(true);
  if (!reader.ok()) return reader.status();
  return service;
}

Object SnapshotMetadataService::Encode() const {
  Object object = NewObject(kResource, meta);
  object.SetString({"spec", "audience"}, audience);
  object.SetString({"spec", "address"}, address);
  object.SetBytes({"spec", "caCert"}, ca);
  if (!requires_base) object.SetBool({"spec", "requireBaseSnapshotForDelta"}, false);
  return object;
}

}  // namespace cbt::kube

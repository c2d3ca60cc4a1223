#include "programs/revisions/aggregated/volume_snapshot_delta.h"

#include <algorithm>
#include <utility>

#include "base/json_builder.h"
#include "kube/object/field_reader.h"
#include "programs/cluster/object_name.h"
#include "programs/revisions/aggregated/api/strict_fields.h"

namespace cbt::kube::aggregated {
namespace {

absl::Status CheckName(std::string_view field, const std::string& name) {
  // The API server could take other texts for something else than a name.
  if (!cluster::IsObjectName(name)) return WrongField(field, "expected the name of an object");
  return absl::OkStatus();
}

absl::Status CheckShape(const Object& object) {
  absl::Status status =
      CheckFields(object, {}, {"apiVersion", "kind", "metadata", "spec", "status"});
  status.Update(CheckFields(object, {"spec"},
                            {"baseVolumeSnapshotName", "targetVolumeSnapshotName", "mode",
                             "volumeSnapshotDeltaSecretRef", "limit", "offset"}));
  status.Update(
      CheckFields(object, {"spec", "volumeSnapshotDeltaSecretRef"}, {"name", "namespace"}));
  if (!status.ok()) return status;
  if (object.api_version() != kVolumeSnapshotDeltas.ApiVersion()) {
    return WrongField("apiVersion", "expected cbt.storage.k8s.io/v1alpha1");
  }
  if (object.kind() != kVolumeSnapshotDeltas.kind) {
    return WrongField("kind", "expected VolumeSnapshotDelta");
  }
  return absl::OkStatus();
}

absl::Status ReadSecret(const Object& object, VolumeSnapshotDelta& delta) {
  if (!object.Has({"spec", "volumeSnapshotDeltaSecretRef"})) return absl::OkStatus();
  std::string name_space;
  FieldReader reader(object);
  reader.Read(object.String({"spec", "volumeSnapshotDeltaSecretRef", "name"}), delta.secret);
  reader.Text({"spec", "volumeSnapshotDeltaSecretRef", "namespace"}, name_space);
  if (!reader.ok()) return reader.status();
  if (!name_space.empty() && name_space != delta.name_space) {
    return WrongField("spec.volumeSnapshotDeltaSecretRef.namespace",
                      "expected the namespace of the VolumeSnapshotDelta");
  }
  return CheckName("spec.volumeSnapshotDeltaSecretRef.name", delta.secret);
}

// The object, which goes on with its status.
JsonBuilder BeginStatus(const Object& object) {
  std::string json = object.ToJson();
  json.pop_back();  // its closing brace
  JsonBuilder open(std::move(json));
  open.Key("status");
  return open;
}

}  // namespace

absl::StatusOr<VolumeSnapshotDelta> VolumeSnapshotDelta::Parse(std::string_view json,
                                                               std::string_view name_space) {
  absl::StatusOr<Object> object = Object::ParseRequest(json);
  if (!object.ok()) return object.status();
  if (absl::Status status = CheckShape(*object); !status.ok()) return status;
  VolumeSnapshotDelta delta;
  delta.name_space = name_space;
  ObjectMeta meta;
  std::string mode = "block";
  FieldReader reader(*object);
  reader.Read(object->Meta(), meta);
  const absl::StatusOr<std::optional<std::string>> base =
      object->OptionalString({"spec", "baseVolumeSnapshotName"});
  reader.Read(object->String({"spec", "targetVolumeSnapshotName"}), delta.target);
  reader.Text({"spec", "mode"}, mode);
  reader.Read(Unsigned(*object, {"spec", "limit"}), delta.limit);
  reader.Read(Unsigned(*object, {"spec", "offset"}), delta.offset);
  if (!reader.ok()) return reader.status();
  if (!base.ok()) return base.status();
  if (!meta.name_space.empty() && meta.name_space != name_space) {
    return WrongField("metadata.namespace", "expected the namespace that the request is sent to");
  }
  if (mode != "block" && !mode.empty()) return WrongField("spec.mode", "expected block");
  if (absl::Status status = CheckName("spec.targetVolumeSnapshotName", delta.target);
      !status.ok()) {
    return status;
  }
  // As with every optional field of Kubernetes, empty means absent.
  if (base->has_value() && !(*base)->empty()) {
    delta.base = **base;
    if (absl::Status status = CheckName("spec.baseVolumeSnapshotName", *delta.base); !status.ok()) {
      return status;
    }
  }
  if (absl::Status status = ReadSecret(*object, delta); !status.ok()) return status;
  if (const auto version = object->annotation(kSourceVersionAnnotation)) {
    delta.source_version = std::string(*version);
  }
  // An answer that is sent back has one.
  object->Remove({"status"});
  object->SetString({"metadata", "namespace"}, name_space);
  delta.object = *std::move(object);
  return delta;
}

void DeltaAnswer::Add(const PageBlock& block) {
  if (!block.token.has_value()) return status_.Add(block.index);
  const DataToken& token = *block.token;
  status_.Add(block.index, rpc::DeltaStatus::Token{.token = token.token,
                                                   .issuance_time = token.issuance_time,
                                                   .ttl_seconds = token.ttl_seconds});
}

std::string DeltaAnswer::Finish(const PageHead& head, const PageEnd& end,
                                std::string_view source_version) {
  Object object = request_.object;
  object.SetString({"metadata", "annotations", kSourceVersionAnnotation}, source_version);
  if (head.volume_size.has_value()) {
    object.SetString({"metadata", "annotations", kVolumeSizeAnnotation},
                     std::to_string(*head.volume_size));
  } else {
    // Otherwise an older answer that is sent back would speak for this one.
    object.Remove({"metadata", "annotations", kVolumeSizeAnnotation});
  }
  JsonBuilder json = BeginStatus(object);
  status_.Finish(end.more, end.next_block, json);
  return json.EndObject().Take() + "\n";
}

std::string DeltaAnswer::Fail(const absl::Status& error) {
  JsonBuilder json = BeginStatus(request_.object);
  status_.Fail(error, json);
  return json.EndObject().Take() + "\n";
}

}  // namespace cbt::kube::aggregated

#include "programs/revisions/aggregated/volume_snapshot_delta.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
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
  absl::StrAppend(&blocks_, blocks_.empty() ? "" : ",", R"({"offset":)", block.index,
                  R"(,"blockSizeBytes":)", block_size_);
  if (block.token.has_value()) {
    const DataToken& token = *block.token;
    absl::StrAppend(&blocks_, R"(,"dataToken":{"token":)", JsonString(token.token));
    if (!token.issuance_time.empty()) {
      absl::StrAppend(&blocks_, R"(,"issuanceTime":)", JsonString(token.issuance_time));
    }
    // A duration as Go writes it: 3h0m0s.
    const int64_t seconds = token.ttl_seconds;
    absl::StrAppend(&blocks_, R"(,"ttl":")", seconds / 3600, "h", seconds / 60 % 60, "m",
                    seconds % 60, R"(s"})");
  }
  blocks_ += '}';
}

std::string DeltaAnswer::Write(Object object, DeltaState state, uint64_t next,
                               const std::string& error) const {
  std::string json = object.ToJson();
  json.pop_back();  // its closing brace
  absl::StrAppend(&json, R"(,"status":{"state":)", static_cast<int>(state));
  if (!error.empty()) absl::StrAppend(&json, R"(,"error":)", JsonString(error));
  absl::StrAppend(&json, R"(,"limit":)", limit_, R"(,"offset":)", request_.offset,
                  R"(,"continue":)", next, R"(,"changedBlockDeltas":[)",
                  state == DeltaState::kFailed ? "" : blocks_, "]}}\n");
  return json;
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
  return Write(std::move(object), end.more ? DeltaState::kContinue : DeltaState::kCompleted,
               end.next_block, "");
}

std::string DeltaAnswer::Fail(const absl::Status& error) {
  return Write(request_.object, DeltaState::kFailed, request_.offset,
               absl::StrCat(absl::StatusCodeToString(error.code()), ": ", error.message()));
}

}  // namespace cbt::kube::aggregated

#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/kube/typed_objects.h"

namespace cbt::kube {
namespace {

std::string SnapshotText(const VolumeSnapshot& snapshot, std::string_view state) {
  return absl::StrCat("VolumeSnapshot ", snapshot.meta.name_space, "/", snapshot.meta.name,
                      AbslView(state));
}

absl::Status NotReady(const VolumeSnapshot& snapshot) {
  return absl::UnavailableError(SnapshotText(snapshot, " is not ready"));
}

absl::Status NotBound(const VolumeSnapshot& snapshot) {
  return absl::UnavailableError(SnapshotText(snapshot, " is not bound"));
}

}  // namespace

absl::StatusOr<std::string> ContentNameOf(const VolumeSnapshot& snapshot, BindingPolicy policy) {
  const VolumeSnapshot::Status status = snapshot.status.value_or(VolumeSnapshot::Status());
  if (policy == BindingPolicy::kReadable && !status.ready_to_use.value_or(false)) {
    return NotReady(snapshot);
  }
  const std::string name = status.bound_content.value_or("");
  if (name.empty()) return NotBound(snapshot);
  return name;
}

absl::StatusOr<BoundSnapshot> Bind(const VolumeSnapshot& snapshot,
                                   const VolumeSnapshotContent& content, BindingPolicy policy,
                                   const std::optional<std::string>& driver) {
  const absl::StatusOr<std::string> name = ContentNameOf(snapshot, policy);
  if (!name.ok()) return name.status();
  const ObjectMeta& meta = snapshot.meta;
  const bool names_it =
      content.snapshot_namespace == meta.name_space && content.snapshot_name == meta.name;
  if (names_it && (content.snapshot_uid.empty() || meta.uid.empty())) return NotBound(snapshot);
  if (!names_it || content.snapshot_uid != meta.uid || content.meta.name != *name) {
    return absl::FailedPreconditionError(absl::StrCat("VolumeSnapshotContent ", content.meta.name,
                                                      " does not belong to ",
                                                      SnapshotText(snapshot, "")));
  }
  if (driver.has_value() && content.driver != *driver) {
    return absl::InvalidArgumentError(
        SnapshotText(snapshot, absl::StrCat(" is not one of the driver ", *driver)));
  }
  BoundSnapshot bound = {.name_space = meta.name_space,
                         .name = meta.name,
                         .uid = meta.uid,
                         .content = content.meta.name,
                         .content_uid = content.meta.uid,
                         .driver = content.driver,
                         .class_name = snapshot.class_name,
                         .volume_handle = content.source_volume_handle};
  bool ready = false;
  if (content.status.has_value()) {
    bound.handle = content.status->snapshot_handle.value_or("");
    bound.creation_time = content.status->creation_time;
    // Drivers that do not know it say 0.
    if (const int64_t size = content.status->restore_size.value_or(0); size > 0) {
      bound.restore_size = static_cast<uint64_t>(size);
    }
    ready = content.status->ready_to_use.value_or(false) && !bound.handle.empty();
  }
  if (policy == BindingPolicy::kReadable && !ready) return NotReady(snapshot);
  return bound;
}

absl::Status CheckPair(const BoundSnapshot& base, const BoundSnapshot& target) {
  if (base.volume_handle.has_value() && target.volume_handle.has_value() &&
      *base.volume_handle != *target.volume_handle) {
    return absl::InvalidArgumentError("the two snapshots are of different volumes");
  }
  if (base.creation_time.has_value() && target.creation_time.has_value() &&
      *base.creation_time > *target.creation_time) {
    return absl::InvalidArgumentError("the base snapshot is newer than the target");
  }
  return absl::OkStatus();
}

}  // namespace cbt::kube

#include "programs/cluster/binding.h"

#include "absl/strings/str_cat.h"

namespace cbt::kube::cluster {
namespace {

std::string TextOf(const VolumeSnapshot& snapshot) {
  return absl::StrCat("snapshot ", snapshot.meta.name_space, "/", snapshot.meta.name);
}

absl::Status NotReady(const VolumeSnapshot& snapshot) {
  return absl::UnavailableError(absl::StrCat(TextOf(snapshot), " is not ready"));
}

absl::Status NotBound(const VolumeSnapshot& snapshot) {
  return absl::UnavailableError(absl::StrCat(TextOf(snapshot), " is not bound"));
}

}  // namespace

absl::StatusOr<std::string> ContentNameOf(const VolumeSnapshot& snapshot) {
  if (!snapshot.status.has_value() || !snapshot.status->ready_to_use.value_or(false)) {
    return NotReady(snapshot);
  }
  const std::string name = snapshot.status->bound_content.value_or("");
  if (name.empty()) return NotBound(snapshot);
  return name;
}

absl::StatusOr<BoundSnapshot> Bind(const VolumeSnapshot& snapshot,
                                   const VolumeSnapshotContent& content,
                                   const std::string& driver) {
  const absl::StatusOr<std::string> name = ContentNameOf(snapshot);
  if (!name.ok()) return name.status();
  if (content.meta.name != *name || content.snapshot_namespace != snapshot.meta.name_space ||
      content.snapshot_name != snapshot.meta.name || snapshot.meta.uid.empty() ||
      content.snapshot_uid != snapshot.meta.uid) {
    return NotBound(snapshot);
  }
  if (content.driver != driver) {
    return absl::InvalidArgumentError(
        absl::StrCat(TextOf(snapshot), " is not one of the driver ", driver));
  }
  if (!content.status.has_value() || !content.status->ready_to_use.value_or(false)) {
    return NotReady(snapshot);
  }
  const std::string handle = content.status->snapshot_handle.value_or("");
  if (handle.empty()) return NotReady(snapshot);
  std::optional<uint64_t> restore_size;
  // Drivers that do not know it say 0.
  if (content.status->restore_size.value_or(0) > 0) {
    restore_size = static_cast<uint64_t>(*content.status->restore_size);
  }
  return BoundSnapshot{.name_space = snapshot.meta.name_space,
                       .name = snapshot.meta.name,
                       .content = content.meta.name,
                       .class_name = snapshot.class_name,
                       .handle = handle,
                       .volume_handle = content.source_volume_handle,
                       .creation_time = content.status->creation_time,
                       .restore_size = restore_size};
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

}  // namespace cbt::kube::cluster

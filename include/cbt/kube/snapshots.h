// Volume snapshots and their metadata services. Part of cbt::kube.
//
// A status, and every field of it, may be absent: a snapshot that no controller has seen yet has
// none. What is absent is unset here, never a default.
#ifndef CBT_KUBE_SNAPSHOTS_H_
#define CBT_KUBE_SNAPSHOTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/kube/object.h"
#include "cbt/kube/resource.h"
#include "cbt/version.h"

namespace cbt::kube {

// What a user sees of a snapshot.
struct VolumeSnapshot {
  static constexpr Resource kResource = kVolumeSnapshots;

  ObjectMeta meta = {};
  // One of the two: the claim that it was taken of, or the content that existed before.
  std::optional<std::string> source_claim = {};
  std::optional<std::string> source_content = {};
  std::optional<std::string> class_name = {};

  struct Status {
    std::optional<std::string> bound_content = {};  // the name of its VolumeSnapshotContent
    std::optional<Time> creation_time = {};
    std::optional<bool> ready_to_use = {};
    std::optional<std::string> restore_size = {};  // a quantity: "10Gi"
    std::optional<std::string> error = {};
  };
  std::optional<Status> status = {};

  static absl::StatusOr<VolumeSnapshot> Decode(const Object& object);
  Object Encode() const;  // without status: it is written as a subresource
};

// What the storage has of a snapshot.
struct VolumeSnapshotContent {
  static constexpr Resource kResource = kVolumeSnapshotContents;

  ObjectMeta meta = {};
  // The snapshot that it belongs to. The uid is empty until they are bound.
  std::string snapshot_namespace = {};
  std::string snapshot_name = {};
  std::string snapshot_uid = {};
  std::string driver = {};
  std::string deletion_policy = {};
  std::optional<std::string> class_name = {};
  // One of the two: the volume that it was taken of, or the snapshot that existed before.
  std::optional<std::string> source_volume_handle = {};
  std::optional<std::string> source_snapshot_handle = {};
  std::optional<std::string> source_volume_mode = {};  // "Block" or "Filesystem"

  struct Status {
    std::optional<std::string> snapshot_handle = {};
    std::optional<int64_t> creation_time = {};  // UNIX time in nanoseconds
    std::optional<int64_t> restore_size = {};   // bytes
    std::optional<bool> ready_to_use = {};
    std::optional<std::string> error = {};
  };
  std::optional<Status> status = {};

  static absl::StatusOr<VolumeSnapshotContent> Decode(const Object& object);
  Object Encode() const;  // without status
};

struct VolumeSnapshotClass {
  static constexpr Resource kResource = kVolumeSnapshotClasses;

  ObjectMeta meta = {};
  std::string driver = {};
  std::string deletion_policy = {};
  std::map<std::string, std::string> parameters = {};

  // Snapshots that name no class get this one, if it is the only one of the driver.
  bool IsDefault() const;

  static absl::StatusOr<VolumeSnapshotClass> Decode(const Object& object);
  Object Encode() const;
};

// Where the metadata service of a driver is. Its name is the driver's.
struct SnapshotMetadataService {
  static constexpr Resource kResource = kSnapshotMetadataServices;

  ObjectMeta meta = {};
  std::string audience = {};  // of the tokens that it accepts
  std::string address = {};   // "host:port"
  std::string ca = {};        // PEM

  static absl::StatusOr<SnapshotMetadataService> Decode(const Object& object);
  Object Encode() const;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_SNAPSHOTS_H_

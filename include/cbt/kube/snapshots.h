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

#include "absl/status/status.h"
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
  // False: the driver gives deltas from snapshots that were deleted.
  bool requires_base = true;

  static absl::StatusOr<SnapshotMetadataService> Decode(const Object& object);
  Object Encode() const;
};

// What must be true of a snapshot and its content, beside that they belong to each other.
enum class BindingPolicy : unsigned char {
  kOwner,     // nothing: they are asked whose snapshot it is, for example of which driver
  kReadable,  // both are ready and there is a handle: the driver is asked for its data
};

// A snapshot and the content that belongs to it.
struct BoundSnapshot {
  std::string name_space = {};
  std::string name = {};
  std::string uid = {};
  std::string content = {};  // the name of the VolumeSnapshotContent
  std::string content_uid = {};
  std::string driver = {};
  std::optional<std::string> class_name = {};  // of the VolumeSnapshot
  std::string handle = {};                     // not empty with kReadable
  // Unknown of a snapshot that existed before its objects.
  std::optional<std::string> volume_handle = {};
  std::optional<int64_t> creation_time = {};  // UNIX time in nanoseconds
  std::optional<uint64_t> restore_size = {};  // of a volume made from it, in bytes; above 0
};

// The name of the content that the snapshot says it is bound to.
// Errors: UNAVAILABLE if it is not bound yet or, with kReadable, not ready.
absl::StatusOr<std::string> ContentNameOf(const VolumeSnapshot& snapshot, BindingPolicy policy);

// Whether a content belongs to a snapshot. Both must name each other, the content by namespace,
// name and uid. A content without a uid is not bound yet. One that belongs to another snapshot says
// nothing else about itself: that is checked first.
// Errors: UNAVAILABLE if they are not bound to each other yet or, with kReadable, not ready;
//         FAILED_PRECONDITION if the content belongs to another snapshot; INVALID_ARGUMENT for
//         another driver than `driver`, if that is set.
absl::StatusOr<BoundSnapshot> Bind(const VolumeSnapshot& snapshot,
                                   const VolumeSnapshotContent& content, BindingPolicy policy,
                                   const std::optional<std::string>& driver = {});

// Errors: INVALID_ARGUMENT if the two are known to be of different volumes, or if the base is known
//         to be the newer one.
absl::Status CheckPair(const BoundSnapshot& base, const BoundSnapshot& target);

}  // namespace cbt::kube

#endif  // CBT_KUBE_SNAPSHOTS_H_

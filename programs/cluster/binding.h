// When a snapshot and its content belong together, and two snapshots to one delta.
#ifndef CBT_PROGRAMS_CLUSTER_BINDING_H_
#define CBT_PROGRAMS_CLUSTER_BINDING_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/typed_objects.h"

namespace cbt::kube::cluster {

// A snapshot that can be read.
struct BoundSnapshot {
  std::string name_space;
  std::string name;
  std::string content;                    // the name of the VolumeSnapshotContent
  std::optional<std::string> class_name;  // of the VolumeSnapshot
  std::string handle;
  // Unknown of a snapshot that existed before its objects.
  std::optional<std::string> volume_handle;
  std::optional<int64_t> creation_time;  // UNIX time in nanoseconds
  std::optional<uint64_t> restore_size;  // of a volume made from it, in bytes; above 0
};

// The name of the content that the snapshot says it is bound to.
// Errors: UNAVAILABLE if it is not ready, or not bound yet.
absl::StatusOr<std::string> ContentNameOf(const VolumeSnapshot& snapshot);

// The two as one. Both must name each other, the content with namespace, name and uid: a content
// that belongs to another snapshot says nothing about itself here.
// Errors: UNAVAILABLE if they are not bound to each other, or not ready; INVALID_ARGUMENT for
//         another driver than `driver`.
absl::StatusOr<BoundSnapshot> Bind(const VolumeSnapshot& snapshot,
                                   const VolumeSnapshotContent& content, const std::string& driver);

// Errors: INVALID_ARGUMENT if the two are known to be of different volumes, or if the base is known
//         to be the newer one.
absl::Status CheckPair(const BoundSnapshot& base, const BoundSnapshot& target);

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_BINDING_H_

// The Kubernetes object of the proposal's paged revision: VolumeSnapshotDelta of group
// cbt.storage.k8s.io/v1alpha1, as JSON, one page at a time.
#ifndef CBT_PROGRAMS_CBT_OUTPUT_VOLUME_SNAPSHOT_DELTA_H_
#define CBT_PROGRAMS_CBT_OUTPUT_VOLUME_SNAPSHOT_DELTA_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"

namespace cbt::cli {

// The object's metadata and spec.
struct VolumeSnapshotDeltaSpec {
  std::string name = {};  // metadata.name and metadata.namespace; left out when empty
  std::string name_space = {};
  std::optional<std::string> base_snapshot = {};  // unset: everything allocated in the target
  std::string target_snapshot = {};
  uint64_t limit = 256;  // maximum number of blocks on the page
  uint64_t offset = 0;   // index of the first block
};

// Returns one line of JSON: the page of blocks of `block_size` bytes from index `spec.offset` on.
// The extents of `cursor` may have any granularity; they are rounded outward to blocks. If the
// cursor fails, the object has state kFailed, `error` and no blocks. `failure`, if given, is set to
// the cursor's error, or to OK.
// Errors: INVALID_ARGUMENT for a block size that a fixed-block cursor can't have, a limit of 0 or a
//         missing target.
// Cost:   that of seeking the cursor and of `limit` blocks; memory grows with `limit`.
absl::StatusOr<std::string> RenderVolumeSnapshotDelta(const VolumeSnapshotDeltaSpec& spec,
                                                      std::unique_ptr<ExtentCursor> cursor,
                                                      uint64_t block_size,
                                                      absl::Status* failure = nullptr);

// The object for a request that failed before it had a cursor.
std::string RenderFailedVolumeSnapshotDelta(const VolumeSnapshotDeltaSpec& spec,
                                            const absl::Status& error);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OUTPUT_VOLUME_SNAPSHOT_DELTA_H_

// Which clusters an increment has, and where its tables will lie.
#ifndef CBT_SOURCE_OVERLAY_OVERLAY_PLAN_H_
#define CBT_SOURCE_OVERLAY_OVERLAY_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/source/copy_ranges.h"
#include "cbt/units.h"

namespace cbt {

// Neighbouring clusters of the volume that an overlay holds: as data, or marked as zeros.
struct OverlayRun {
  uint64_t first = 0;  // number of the cluster
  uint64_t count = 0;
  bool zero = false;

  uint64_t end() const noexcept { return first + count; }
};

// The shape of a qcow2 file.
struct OverlayShape {
  unsigned cluster_bits = 16;
  uint64_t size = 0;  // of the volume in bytes

  uint64_t cluster() const noexcept { return uint64_t{1} << cluster_bits; }
  // Clusters of the volume to which one second-level table has entries.
  uint64_t table_entries() const noexcept { return cluster() / 8; }
  uint64_t clusters() const noexcept { return BlockCount(size, cluster()); }
  // qemu wants one entry even for an empty volume.
  uint64_t first_level_entries() const noexcept {
    return clusters() == 0 ? 1 : BlockCount(clusters(), table_entries());
  }
  // Where data begins: behind the header, and past where signatures of file systems and volume
  // managers are looked for, so that a guest's data does not pass for one.
  uint64_t data_begin() const noexcept { return AlignUp(64 * kKiB, cluster()); }
};

// OK for a shape that qcow2 and qemu can have.
// Errors: INVALID_ARGUMENT.
absl::Status CheckOverlayShape(const OverlayShape& shape);

// Runs in ascending order, which neither touch with one kind nor overlap. 24 bytes each.
struct OverlayPlan {
  OverlayShape shape = {};
  std::vector<OverlayRun> runs = {};
  uint64_t data_clusters = 0;
  uint64_t zero_clusters = 0;
  uint64_t tables = 0;  // of the second level

  // Appends a run behind all others; merges it with the last one if both are of a kind.
  void Add(uint64_t first, uint64_t count, bool zero);
};

// Plans the clusters that the extents of `cursor` touch, from its beginning. One is marked as zeros
// if it has no data in `input`; a cluster that is changed in part is data as a whole.
// Returns: a plan, and only after the cursor was complete.
// Errors:  those of the cursor and of FindData(); INVALID_ARGUMENT for a shape that can't be, and
//          if the sizes of cursor, input and shape differ.
absl::StatusOr<OverlayPlan> PlanOverlay(const OverlayShape& shape, ExtentCursor& cursor,
                                        const CopyInput& input);

// Where the tables of a file lie whose data ends at `data_end`: second-level tables, the
// first-level table, blocks of reference counts, the table of these. They are the last thing in the
// file, so that one that was cut has none.
struct OverlayTables {
  uint64_t second_level = 0;
  uint64_t first_level = 0;
  uint64_t count_blocks = 0;
  uint64_t count_table = 0;
  uint64_t count_table_clusters = 0;
  uint64_t end = 0;  // the size of the file
};

// Requires: `data_end` begins a cluster. Errors: INVALID_ARGUMENT for more clusters than qemu
// counts.
absl::StatusOr<OverlayTables> PlaceOverlayTables(const OverlayPlan& plan, uint64_t data_end);

}  // namespace cbt

#endif  // CBT_SOURCE_OVERLAY_OVERLAY_PLAN_H_

// Ends a tracker's epoch in one step.
#ifndef CBT_TESTS_MAP_TRACKER_EPOCHS_H_
#define CBT_TESTS_MAP_TRACKER_EPOCHS_H_

#include "absl/status/statusor.h"
#include "cbt/change_tracker.h"

namespace cbt::test {

// Closes the older epoch and acknowledges its map.
inline absl::StatusOr<ChangeMap> EndEpoch(ChangeTracker& tracker) {
  absl::StatusOr<ChangeMap> map = tracker.CloseEpoch();
  if (!map.ok()) return map;
  if (absl::Status status = tracker.Acknowledge(map->identity()); !status.ok()) return status;
  return map;
}

}  // namespace cbt::test

#endif  // CBT_TESTS_MAP_TRACKER_EPOCHS_H_

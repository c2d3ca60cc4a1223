// Replaces the Events of `cbt-driver driver` in a build without Kubernetes.

#include "absl/status/status.h"
#include "programs/driver/program/volume_events.h"

namespace cbt::cli {

absl::StatusOr<VolumeEvents> MakeVolumeEvents(const VolumeEventsOptions&) {
  return absl::FailedPreconditionError("not in this build, which has no libcurl or no yaml-cpp");
}

}  // namespace cbt::cli

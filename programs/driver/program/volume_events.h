// Events of Kubernetes about volumes whose server does not run.
#ifndef CBT_PROGRAMS_DRIVER_PROGRAM_VOLUME_EVENTS_H_
#define CBT_PROGRAMS_DRIVER_PROGRAM_VOLUME_EVENTS_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "programs/driver/host/volume_host.h"

namespace cbt::cli {

struct VolumeEventsOptions {
  std::string kubeconfig = {};  // empty: as kube::LoadDefaultConfig()
  std::string driver_name = {};
  std::string node_id = {};
};

using VolumeEvents =
    std::function<void(const std::string& volume, const driver::VolumeHealth& health)>;

// What the function is called with becomes an Event at the claim of the volume, or at the node if
// it has none; what it is called with without a volume is about the host, and at the node. It
// returns at once; a thread of its own writes. Needs the rights to list persistent volumes and to
// create Events. What can't be written is lost: log and metrics have it too. Errors: those of the
// configuration; FAILED_PRECONDITION in a build without Kubernetes.
absl::StatusOr<VolumeEvents> MakeVolumeEvents(const VolumeEventsOptions& options);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_DRIVER_PROGRAM_VOLUME_EVENTS_H_

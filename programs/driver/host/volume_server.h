// The nbdkit that serves a volume.
#ifndef CBT_PROGRAMS_DRIVER_HOST_VOLUME_SERVER_H_
#define CBT_PROGRAMS_DRIVER_HOST_VOLUME_SERVER_H_

#include <string>

#include "absl/status/status.h"
#include "base/descriptor.h"
#include "programs/driver/state/volume_paths.h"

namespace cbt::driver {

// For one thread at a time.
class VolumeServer {
 public:
  // `plugin`: of nbdkit, its name or its path.
  VolumeServer(VolumePaths paths, std::string id, std::string plugin)
      : paths_(std::move(paths)), id_(std::move(id)), plugin_(std::move(plugin)) {}

  // Starts it unless it runs already, and returns once it can be asked.
  // Errors: FAILED_PRECONDITION without nbdkit; UNAVAILABLE, with what it said.
  absl::Status Start();
  // Ends it, also one that an earlier process has started, and removes its files. Everything that
  // it acknowledged is in the volume's file afterwards; OK if none runs.
  // Errors: UNAVAILABLE if it does not end, FAILED_PRECONDITION if somebody else serves the volume.
  absl::Status End();
  // A descriptor that is readable once it has ended; negative if none runs.
  int ended() const noexcept { return process_.number(); }

 private:
  const VolumePaths paths_;
  const std::string id_;
  const std::string plugin_;
  OwnedDescriptor process_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_HOST_VOLUME_SERVER_H_

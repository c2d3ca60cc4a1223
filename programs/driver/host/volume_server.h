// The nbdkit that serves a volume.
#ifndef CBT_PROGRAMS_DRIVER_HOST_VOLUME_SERVER_H_
#define CBT_PROGRAMS_DRIVER_HOST_VOLUME_SERVER_H_

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "base/descriptor.h"
#include "programs/driver/state/volume_paths.h"

namespace cbt::driver {

struct ServerOptions {
  std::string plugin = "cbt";  // of nbdkit, its name or its path
  // Written to its oom_score_adj; empty: as that of this process.
  std::string memory_score = {};
  std::chrono::milliseconds start_time{30'000};
  std::chrono::milliseconds end_time{30'000};
};

// For one thread at a time.
class VolumeServer {
 public:
  using Clock = std::chrono::steady_clock;

  VolumeServer(VolumePaths paths, std::string id, ServerOptions options)
      : paths_(std::move(paths)), id_(std::move(id)), options_(std::move(options)) {}

  // Starts it unless it runs already, and returns once it can be asked. One that has not opened the
  // volume after start_time goes on with that: call again.
  // Errors: FAILED_PRECONDITION without nbdkit, or if somebody else serves the volume; UNAVAILABLE,
  //         with what it said.
  absl::Status Start();
  // Asks it to end, also one that an earlier process has started, and does not wait.
  absl::Status AskToEnd();
  // The same, waits until `latest` (after end_time without it), and removes its files. Everything
  // that it acknowledged is in the volume's file afterwards; OK if none runs. Errors: UNAVAILABLE
  // if it does not end, FAILED_PRECONDITION if somebody else serves the volume.
  absl::Status End() { return End(Clock::now() + options_.end_time); }
  absl::Status End(Clock::time_point latest);
  // A descriptor that is readable once it has ended; negative if none runs.
  int ended() const noexcept { return process_.number(); }
  // Its output before it had opened the volume, if this object started it.
  std::string said() const;

 private:
  absl::Status Launch();
  void Find();
  absl::Status Failed() const;

  const VolumePaths paths_;
  const std::string id_;
  const ServerOptions options_;
  OwnedDescriptor process_;
  OwnedDescriptor output_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_HOST_VOLUME_SERVER_H_

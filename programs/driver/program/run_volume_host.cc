// What `cbt-driver volume-host` does.

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "programs/driver/program/commands.h"
#include "programs/driver/program/volume_host.h"

namespace cbt::cli {
namespace {

// A host that a driver's successor asks for is started while the earlier one ends.
constexpr std::chrono::seconds kWaitForEarlier{60};
constexpr std::chrono::seconds kIdleTime{10};

absl::Status WriteNowhere() {
  const OwnedDescriptor nothing(OpenFile("/dev/null", O_RDWR | O_CLOEXEC));
  if (!nothing.has_value()) return FileError("/dev/null", errno);
  for (const int each : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::dup2(nothing.number(), each) < 0) return FileError("/dev/null", errno);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunVolumeHost(const VolumeHostArguments& arguments) {
  const ServingArguments& serving = arguments.serving;
  if (absl::Status ready = CheckReadyDescriptor(serving); !ready.ok()) return ready;
  if (arguments.background) {
    if (absl::Status nowhere = WriteNowhere(); !nowhere.ok()) return nowhere;
  }
  PrepareProcess();
  const absl::StatusOr<std::unique_ptr<driver::HostServer>> started =
      driver::HostServer::Start(arguments.host, kWaitForEarlier);
  if (!started.ok()) return started.status();
  driver::HostServer& host = **started;
  RunUntilStopped(serving, "volume-host", arguments.host.state_directory, host.address(),
                  [&host](std::chrono::milliseconds grace) { host.Shutdown(grace); },
                  {.ended = [&] { return arguments.background && host.IsIdle(kIdleTime); }});
  return absl::OkStatus();
}

}  // namespace cbt::cli

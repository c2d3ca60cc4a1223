// What `cbt-driver driver` does.

#include <chrono>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "base/file_io.h"
#include "cbt/ops/log.h"
#include "programs/cbt/support/status.h"
#include "programs/driver/driver.h"
#include "programs/driver/program/commands.h"
#include "programs/driver/program/driver.h"
#include "programs/driver/program/volume_events.h"

namespace cbt::cli {

absl::Status RunDriver(const DriverArguments& arguments) {
  const ServingArguments& serving = arguments.serving;
  if (absl::Status ready = CheckReadyDescriptor(serving); !ready.ok()) return ready;
  PrepareProcess();
  const absl::StatusOr<std::unique_ptr<rpc::LogSink>> log = ops::MakeLog(
      {.level = serving.log_level.value_or(rpc::LogLevel::kWarning), .file = serving.log_file});
  if (!log.ok()) return {log.status().code(), "--log-file: " + MessageOf(log.status())};
  driver::DriverOptions options = arguments.driver;
  options.log = log->get();
  if (arguments.volume_host == "own") {
    std::error_code error;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error) return FileError("/proc/self/exe", error.value());
    options.volume_host = {self,
                           "volume-host",
                           "--background",
                           "--state-dir",
                           options.state_directory,
                           "--nbdkit-plugin",
                           arguments.nbdkit_plugin};
  }
  if (arguments.events) {
    absl::StatusOr<VolumeEvents> events = MakeVolumeEvents({.kubeconfig = arguments.kubeconfig,
                                                            .driver_name = options.driver_name,
                                                            .node_id = options.node_id});
    if (!events.ok()) {
      return {events.status().code(), "--events: " + MessageOf(events.status())};
    }
    options.changed = *std::move(events);
  }
  const absl::StatusOr<std::unique_ptr<driver::Driver>> started = driver::Driver::Start(options);
  if (!started.ok()) return started.status();
  driver::Driver& running = **started;
  RunUntilStopped(serving, "driver", options.state_directory, running.address(),
                  [&running](std::chrono::milliseconds grace) { running.Shutdown(grace); });
  return absl::OkStatus();
}

}  // namespace cbt::cli

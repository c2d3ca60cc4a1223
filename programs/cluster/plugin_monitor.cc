#include "programs/cluster/plugin_monitor.h"

#include <new>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/stop_wait.h"

namespace cbt::kube::cluster {
namespace {

// Waiting would not help: this is no plugin, or not one for a sidecar.
bool IsFinal(const absl::Status& status) {
  return absl::IsUnimplemented(status) || absl::IsFailedPrecondition(status);
}

absl::Status NoPlugin(const char* why) { return absl::FailedPreconditionError(why); }

// An error of a call. The code FAILED_PRECONDITION is used here for what is final.
absl::Status CallError(const absl::Status& status) {
  if (absl::IsFailedPrecondition(status)) return absl::UnavailableError(status.message());
  return status;
}

}  // namespace

PluginMonitor::PluginMonitor(std::unique_ptr<PluginIdentity> plugin, Driver& driver,
                             ops::EventLog& log, std::function<void(bool ready)> on_change,
                             PluginNeeds needs)
    : plugin_(std::move(plugin)),
      driver_(driver),
      log_(log),
      on_change_(std::move(on_change)),
      needs_(needs),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

PluginMonitor::~PluginMonitor() = default;

absl::Status PluginMonitor::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

absl::Status PluginMonitor::Check(const std::stop_token& stop) {
  // At every look: one that was restarted between two of them may say something else.
  const absl::StatusOr<PluginInfo> info = plugin_->Info(stop);
  if (!info.ok()) return CallError(info.status());
  if (info->name.empty()) return NoPlugin("the plugin has no name");
  if (!driver_.SetName(info->name)) return NoPlugin("the plugin has another name than before");
  driver_.SetRequiresBase(info->requires_base);
  const absl::StatusOr<bool> ready = plugin_->Ready(stop);
  if (!ready.ok()) return CallError(ready.status());
  if (!*ready) return absl::UnavailableError("the plugin says that it is not ready");
  if (!checked_ && needs_ == PluginNeeds::kSnapshotMetadata) {
    const absl::StatusOr<bool> capable = plugin_->HasSnapshotMetadata(stop);
    if (!capable.ok()) return CallError(capable.status());
    if (!*capable) return NoPlugin("the plugin has no capability SNAPSHOT_METADATA_SERVICE");
  }
  return absl::OkStatus();
}

void PluginMonitor::SetReady(bool ready) {
  if (driver_.ready() == ready) return;
  driver_.SetReady(ready);
  on_change_(ready);
}

void PluginMonitor::Run(const std::stop_token& stop) {
  bool ever = false;
  bool first_failure = true;
  do {
    absl::Status status;
    try {
      status = Check(stop);
    } catch (const std::bad_alloc&) {
      status = absl::Status(absl::StatusCode::kResourceExhausted, "");
    }
    if (stop.stop_requested()) return;
    checked_ = status.ok();
    if (status.ok()) {
      if (!driver_.ready()) {
        log_.Write(rpc::LogLevel::kInfo, "plugin ready",
                   {{.key = "driver", .value = driver_.name()}});
      }
      ever = true;
      first_failure = true;
      SetReady(true);
      continue;
    }
    SetReady(false);
    // Once for each time that it is away.
    if (std::exchange(first_failure, false)) log_.Failed("plugin not ready", status);
    if (!ever && IsFinal(status)) {
      const std::lock_guard lock(mutex_);
      failure_ = status;
      return;
    }
  } while (WaitUnlessStopped(stop, checked_ ? kInterval : kRetry));
}

}  // namespace cbt::kube::cluster

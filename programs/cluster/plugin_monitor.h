// Is the plugin there, and what is it?
#ifndef CBT_PROGRAMS_CLUSTER_PLUGIN_MONITOR_H_
#define CBT_PROGRAMS_CLUSTER_PLUGIN_MONITOR_H_

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>

#include "absl/status/status.h"
#include "ops/event_log.h"
#include "programs/cluster/driver.h"
#include "programs/cluster/plugin_identity.h"

namespace cbt::kube::cluster {

// The capability without which a plugin is not served.
enum class PluginNeeds : unsigned char { kNothing, kSnapshotMetadata };

// Waits for the plugin for as long as it takes, then checks it: it has a name, says that it is
// ready, and has the capability. Goes on asking who it is and whether it is ready. A plugin that goes
// away, or is no longer ready, is waited for and checked again. One that comes back under another
// name is not served.
class PluginMonitor {
 public:
  // Between two looks at a plugin that is ready, and at one that is not.
  static constexpr std::chrono::milliseconds kInterval = std::chrono::seconds(10);
  static constexpr std::chrono::milliseconds kRetry = std::chrono::seconds(1);

  // `on_change` is called with whether the plugin is ready, from the monitor's thread, once
  // `driver` says the same. All must outlive the object. Throws std::system_error if no thread can
  // be started.
  PluginMonitor(std::unique_ptr<PluginIdentity> plugin, Driver& driver, ops::EventLog& log,
                std::function<void(bool ready)> on_change,
                PluginNeeds needs = PluginNeeds::kSnapshotMetadata);
  // Cancels a call that is under way.
  ~PluginMonitor();
  PluginMonitor(const PluginMonitor&) = delete;
  PluginMonitor& operator=(const PluginMonitor&) = delete;

  // OK, or why this plugin can never be served: it has no name, or not the capability. Found at the
  // start only; the monitor has ended then.
  absl::Status failure() const;

 private:
  void Run(const std::stop_token& stop);
  absl::Status Check(const std::stop_token& stop);
  void SetReady(bool ready);

  const std::unique_ptr<PluginIdentity> plugin_;
  Driver& driver_;
  ops::EventLog& log_;
  const std::function<void(bool ready)> on_change_;
  const PluginNeeds needs_;
  bool checked_ = false;  // since the plugin was last away

  mutable std::mutex mutex_;
  absl::Status failure_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_PLUGIN_MONITOR_H_

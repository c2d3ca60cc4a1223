// What a plugin says about itself: csi.v1.Identity.
#ifndef CBT_PROGRAMS_CLUSTER_PLUGIN_IDENTITY_H_
#define CBT_PROGRAMS_CLUSTER_PLUGIN_IDENTITY_H_

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/rpc/options.h"
#include "rpc/transport/client_call.h"

namespace cbt::kube::cluster {

// In the manifest of GetPluginInfo: "false" if the plugin gives deltas from snapshots that were
// deleted, as spec.requireBaseSnapshotForDelta of a SnapshotMetadataService says it.
inline constexpr std::string_view kRequiresBaseKey = "cbt.requireBaseSnapshotForDelta";

struct PluginInfo {
  std::string name = {};  // may be empty
  bool requires_base = true;
};

// Asks over a connection of its own, which is opened again whenever it is lost. Each call waits for
// its answer. For one thread at a time.
class PluginIdentity {
 public:
  // Called after each call. `method` is its path.
  using OnCall = std::function<void(std::string_view method, absl::StatusCode code,
                                    std::chrono::nanoseconds time)>;

  // Errors: INVALID_ARGUMENT for an address or TLS that can't be used.
  static absl::StatusOr<std::unique_ptr<PluginIdentity>> Create(const std::string& address,
                                                                const rpc::ClientTlsOptions& tls,
                                                                std::chrono::milliseconds timeout,
                                                                OnCall on_call);

  // Errors: the plugin's; UNAVAILABLE if it can't be reached, CANCELLED after `stop`; INTERNAL for
  // an answer that can't be read.
  absl::StatusOr<PluginInfo> Info(const std::stop_token& stop);
  absl::StatusOr<bool> Ready(const std::stop_token& stop);
  absl::StatusOr<bool> HasSnapshotMetadata(const std::stop_token& stop);

 private:
  PluginIdentity(std::shared_ptr<rpc::Channel> channel, std::chrono::milliseconds timeout,
                 OnCall on_call);
  absl::StatusOr<std::string> Call(const char* method, const std::stop_token& stop);

  const std::shared_ptr<rpc::Channel> channel_;
  const std::chrono::milliseconds timeout_;
  const OnCall on_call_;
};

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_PLUGIN_IDENTITY_H_

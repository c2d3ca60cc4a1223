// The sidecar's metrics: those of every server, and those by the names of the Go sidecar.
#ifndef CBT_PROGRAMS_SIDECAR_OPERATIONS_H_
#define CBT_PROGRAMS_SIDECAR_OPERATIONS_H_

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cbt/ops/metrics.h"
#include "cbt/rpc/telemetry.h"
#include "ops/metric_set.h"
#include "ops/operation_seconds.h"
#include "programs/cluster/driver.h"

namespace cbt::kube::sidecar {

// Beside what cbt::ops::Metrics has:
//
//   snapshot_metadata_controller_operations_seconds{driver_name,method_name,grpc_status_code}
//       histogram: streams (MetadataAllocated, MetadataDelta), and calls of the plugin's Identity
//       by their path
//   cbt_sidecar_ready    1 while the plugin may be asked
//
// No label has a value that clients choose. Thread safe.
class Operations final : public rpc::StreamObserver {
 public:
  // Both must outlive the object.
  Operations(const cluster::Driver& driver, ops::MetricSet& metrics);
  ~Operations() override;

  void OnOpen(const rpc::StreamKind& kind) noexcept override;
  void OnClose(const rpc::StreamReport& report) noexcept override;
  void OnState(const rpc::ServerState& state) noexcept override;
  void OnEvent(rpc::ServerEvent event) noexcept override;

  // A call of the plugin, see PluginIdentity::OnCall.
  void OnCall(std::string_view method, absl::StatusCode code,
              std::chrono::nanoseconds time) noexcept;

  // The text that a scrape returns.
  std::string Text() const;

 private:
  void Observe(std::string_view method, absl::StatusCode code,
               std::chrono::nanoseconds time) noexcept;

  const cluster::Driver& driver_;
  const std::unique_ptr<ops::Metrics> server_;
  ops::OperationSeconds seconds_;
  ops::MetricSet& metrics_;
};

}  // namespace cbt::kube::sidecar

#endif  // CBT_PROGRAMS_SIDECAR_OPERATIONS_H_

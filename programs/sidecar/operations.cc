#include "programs/sidecar/operations.h"

#include <new>

namespace cbt::kube::sidecar {

Operations::Operations(const cluster::Driver& driver, ops::MetricSet& metrics)
    : driver_(driver),
      server_(ops::Metrics::Create()),
      seconds_("snapshot_metadata_controller_operations_seconds",
               "[ALPHA] Time of snapshot metadata operations"),
      metrics_(metrics) {
  metrics_.AddGauge("cbt_sidecar_ready", "1 while the plugin may be asked",
                    [this] { return driver_.ready() ? 1 : 0; });
}

Operations::~Operations() = default;

void Operations::Observe(std::string_view method, absl::StatusCode code,
                         std::chrono::nanoseconds time) noexcept try {
  const std::string driver = driver_.name();
  seconds_.Observe(driver.empty() ? "unknown-driver" : driver, method, code, time);
} catch (const std::bad_alloc&) {
  return;
}

void Operations::OnOpen(const rpc::StreamKind& kind) noexcept { server_->OnOpen(kind); }

void Operations::OnClose(const rpc::StreamReport& report) noexcept {
  server_->OnClose(report);
  Observe(report.kind.delta ? "MetadataDelta" : "MetadataAllocated", report.code, report.total);
}

void Operations::OnState(const rpc::ServerState& state) noexcept { server_->OnState(state); }

void Operations::OnEvent(rpc::ServerEvent event) noexcept { server_->OnEvent(event); }

void Operations::OnCall(std::string_view method, absl::StatusCode code,
                        std::chrono::nanoseconds time) noexcept {
  Observe(method, code, time);
}

std::string Operations::Text() const { return server_->Text() + seconds_.Text() + metrics_.Text(); }

}  // namespace cbt::kube::sidecar

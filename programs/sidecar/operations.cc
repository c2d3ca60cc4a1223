#include "programs/sidecar/operations.h"

#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <new>

namespace cbt::kube::sidecar {

class Operations::Readiness {
 public:
  Readiness()
      : ready_(prometheus::BuildGauge()
                   .Name("cbt_sidecar_ready")
                   .Help("1 while the plugin may be asked")
                   .Register(registry_)
                   .Add({})) {}

  std::string Text(bool ready) {
    ready_.Set(ready ? 1 : 0);
    return prometheus::TextSerializer().Serialize(registry_.Collect());
  }

 private:
  prometheus::Registry registry_;
  prometheus::Gauge& ready_;
};

Operations::Operations(const cluster::Driver& driver)
    : driver_(driver),
      server_(ops::Metrics::Create()),
      seconds_("snapshot_metadata_controller_operations_seconds",
               "[ALPHA] Time of snapshot metadata operations"),
      readiness_(std::make_unique<Readiness>()) {}

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

std::string Operations::Text() const {
  return server_->Text() + seconds_.Text() + readiness_->Text(driver_.ready());
}

}  // namespace cbt::kube::sidecar

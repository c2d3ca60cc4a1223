#include "kube/sidecar/operations.h"

#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <new>

namespace cbt::kube::sidecar {

std::string_view GoCodeName(absl::StatusCode code) noexcept {
  static constexpr std::array<std::string_view, 17> kNames = {
      "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
      "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
      "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
      "DataLoss", "Unauthenticated"};
  const auto number = static_cast<size_t>(code);
  return number < kNames.size() ? kNames[number] : "unknown-non-grpc";
}

class Operations::Histogram {
 public:
  Histogram()
      : seconds_(prometheus::BuildHistogram()
                     .Name("snapshot_metadata_controller_operations_seconds")
                     .Help("[ALPHA] Time of snapshot metadata operations")
                     .Register(registry_)),
        ready_(prometheus::BuildGauge()
                   .Name("cbt_sidecar_ready")
                   .Help("1 while the plugin may be asked")
                   .Register(registry_)
                   .Add({})) {}

  void Observe(const std::string& driver, std::string_view method, absl::StatusCode code,
               std::chrono::nanoseconds time) {
    const prometheus::Histogram::BucketBoundaries buckets = {0.1, 0.25, 0.5, 1,   2.5, 5,  10,
                                                             15,  25,   50,  120, 300, 600};
    seconds_
        .Add({{"driver_name", driver.empty() ? "unknown-driver" : driver},
              {"method_name", std::string(method)},
              {"grpc_status_code", std::string(GoCodeName(code))}},
             buckets)
        .Observe(std::chrono::duration<double>(time).count());
  }

  std::string Text(bool ready) {
    ready_.Set(ready ? 1 : 0);
    return prometheus::TextSerializer().Serialize(registry_.Collect());
  }

 private:
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Histogram>& seconds_;
  prometheus::Gauge& ready_;
};

Operations::Operations(const Driver& driver)
    : driver_(driver), server_(ops::Metrics::Create()), histogram_(std::make_unique<Histogram>()) {}

Operations::~Operations() = default;

void Operations::Observe(std::string_view method, absl::StatusCode code,
                         std::chrono::nanoseconds time) noexcept try {
  histogram_->Observe(driver_.name(), method, code, time);
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

std::string Operations::Text() const { return server_->Text() + histogram_->Text(driver_.ready()); }

}  // namespace cbt::kube::sidecar

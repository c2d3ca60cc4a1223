#include "cbt/grpc/service.h"

#include <new>
#include <system_error>
#include <utility>

#include "rpc/contract/server_event.h"
#include "rpc/contract/status.h"
#include "rpc/grpc/call.h"
#include "rpc/server/identity_and_health_calls.h"
#include "rpc/server/services.h"
#include "rpc/server/stream_registry.h"

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;

}  // namespace

class GrpcService::Impl {
 public:
  // `options` have everything set.
  Impl(SnapshotProvider& provider, ServiceOptions options)
      : telemetry_(options.telemetry),
        registry_(options.stream.max_streams, options.stream.stall_timeout,
                  options.stream.total_time),
        half_requests_(options.stream.max_streams, options.stream.stall_timeout),
        small_calls_(options.stream.stall_timeout, telemetry_.get()),
        services_((options.telemetry = telemetry_.get(), options), provider, registry_,
                  small_calls_) {}

  StreamRegistry& registry() noexcept { return registry_; }
  HalfRequests& half_requests() noexcept { return half_requests_; }
  const ServiceSet& services() const noexcept { return services_; }

 private:
  // In order of dependency: the last tasks of the services' executor hold streams, which refer to
  // the registry.
  const LimitedTelemetry telemetry_;
  StreamRegistry registry_;
  HalfRequests half_requests_;
  IdentityAndHealthCalls small_calls_;
  ServiceSet services_;
};

absl::StatusOr<std::unique_ptr<GrpcService>> GrpcService::Create(
    SnapshotProvider& provider, const ServiceOptions& options) try {
  ServiceOptions service = WithDefaults(options, Api::kCsi, false);
  if (absl::Status status = CheckServiceOptions(service); !status.ok()) return status;
  return std::unique_ptr<GrpcService>(
      new GrpcService(std::make_unique<Impl>(provider, std::move(service))));
} catch (const std::system_error&) {
  return MakeStatusNoThrow(absl::StatusCode::kResourceExhausted,
                           "threads: the system can't start more");
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

GrpcService::GrpcService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  int index = 0;
  for (const cbt::rpc::Service* const service : impl_->services().services()) {
    for (const cbt::rpc::Service::Method& method : service->methods()) {
      AddMethod(NewMethod(method));
      MarkMethodRawCallback(index++, NewHandler(method, impl_->half_requests()));
    }
  }
}

GrpcService::~GrpcService() { Shutdown(milliseconds{0}); }

void GrpcService::Shutdown(milliseconds grace) {
  impl_->registry().StartDrain(grace);
  impl_->half_requests().calls().StartDrain(grace);
  impl_->registry().FinishDrain();
  impl_->half_requests().calls().FinishDrain();
}

size_t GrpcService::open_streams() const noexcept { return impl_->registry().open_streams(); }

}  // namespace cbt::rpc

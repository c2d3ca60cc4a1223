// grpc.health.v1.Health: whether the server accepts streams. Source: grpc/health/v1/health.proto of
// the gRPC project.
//
// gRPC's own implementation does not limit the number or duration of watches.
#ifndef CBT_RPC_SERVER_HEALTH_SERVICE_H_
#define CBT_RPC_SERVER_HEALTH_SERVICE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "base/fair_places.h"
#include "cbt/rpc/telemetry.h"
#include "rpc/server/identity_and_health_calls.h"
#include "rpc/server/stream_registry.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc {

class HealthService final : public Service {
 public:
  // Most watches open at once, of which one address can have half: a client that balances load has
  // one per connection.
  static constexpr size_t kMaxWatches = 512;

  // SERVING until SetServing() or Drain(). A watch whose client reads nothing for `wait_limit`, at
  // most IdentityAndHealthCalls::kWaitLimit, is cancelled. Throws std::system_error if the watching thread can't
  // be started.
  HealthService(IdentityAndHealthCalls& calls, std::chrono::milliseconds wait_limit,
                const Telemetry& telemetry);

  StreamRegistry::Counts Count() const { return watches_.Count(); }

  // Answers SERVING or NOT_SERVING from now on, and sends that to all watches. No effect after
  // Drain().
  void SetServing(bool serving);
  // Answers NOT_SERVING for good.
  void Drain();
  // Ends the watches, and waits at most a few seconds for them.
  void EndWatches();

 private:
  class Watch;
  absl::StatusOr<CallHandler*> OpenWatch(ServerCall& call, const absl::Cord& request);
  void Change(bool serving);

  const IdentityAndHealthCalls::Answer check_;
  const Telemetry telemetry_;
  std::mutex mutex_;  // of changes of the state
  bool drained_ = false;
  std::atomic<bool> serving_ = true;
  FairPlaces places_;
  // Separate, so that watches take no slot of a stream and no drain waits for them.
  StreamRegistry watches_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_HEALTH_SERVICE_H_

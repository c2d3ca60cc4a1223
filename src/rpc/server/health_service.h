// grpc.health.v1.Health: whether the server takes streams. Source: grpc/health/v1/health.proto of
// the gRPC project.
//
// gRPC has one of its own, which keeps as many watches as clients open, indefinitely.
#ifndef CBT_RPC_SERVER_HEALTH_SERVICE_H_
#define CBT_RPC_SERVER_HEALTH_SERVICE_H_

#include <grpcpp/server_context.h>

#include <atomic>
#include <chrono>
#include <cstddef>

#include "cbt/rpc/telemetry.h"
#include "rpc/outbound/open_streams.h"
#include "rpc/server/small_calls.h"
#include "rpc/transport/raw_service.h"

namespace cbt::rpc {

class HealthService final : public RawService {
 public:
  // Watches at a time: a client that balances load has one for each connection.
  static constexpr size_t kMaxWatches = 256;

  // SERVING until Drain(). A watch whose client takes nothing for `patience` is cancelled.
  // Throws std::system_error when there is no thread to watch them with.
  HealthService(SmallCalls& calls, std::chrono::milliseconds patience, const Telemetry& telemetry);

  OpenStreams::Counts Count() const { return watches_.Count(); }

  // From now on the answer is NOT_SERVING; watches are sent it.
  void Drain();
  // Ends the watches; waits for them, at the latest a few seconds.
  void EndWatches();

 private:
  class Watch;
  BidiReactor* OpenWatch(grpc::CallbackServerContext& context);

  const SmallCalls::Answer check_;
  const Telemetry telemetry_;
  std::atomic<bool> serving_ = true;
  // Of its own, so that watches take no stream's place, and no drain waits for them.
  OpenStreams watches_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_HEALTH_SERVICE_H_

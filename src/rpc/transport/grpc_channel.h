// A channel of gRPC.
#ifndef CBT_RPC_TRANSPORT_GRPC_CHANNEL_H_
#define CBT_RPC_TRANSPORT_GRPC_CHANNEL_H_

#include <grpcpp/channel.h>

#include <chrono>
#include <memory>

#include "absl/status/status.h"
#include "rpc/transport/client_call.h"

namespace cbt::rpc {

// Each call has at most one read outstanding. The last reference to the channel, and a call that
// has outlived it, must not be dropped in a callback of gRPC.
class GrpcChannel final : public Channel {
 public:
  // kAfterConnecting: the destructor waits up to a second for a pending connection attempt.
  enum class Release { kAtOnce, kAfterConnecting };

  GrpcChannel(std::shared_ptr<grpc::Channel> channel, Release release);
  ~GrpcChannel() override;

  std::unique_ptr<ClientCall> NewCall(Deadline deadline) override;
  absl::Status Connect(std::chrono::system_clock::time_point deadline) override;

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const Release release_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_GRPC_CHANNEL_H_

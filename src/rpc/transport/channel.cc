#include "rpc/transport/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/resource_quota.h>

#include <memory>

#include "rpc/transport/grpc_channel.h"
#include "rpc/transport/grpc_library.h"
#include "rpc/transport/tls.h"

namespace cbt::rpc {
namespace {

// By default, servers disconnect clients that ping more often than every five minutes.
constexpr int kKeepaliveTimeMs = 6 * 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;

// With gRPC's own backoff, clients wait up to two minutes for a restarted plugin.
// GRPC_ARG_MIN_RECONNECT_BACKOFF_MS is unchanged: it is also the time limit of one attempt.
constexpr int kFirstBackoffMs = 100;
constexpr int kLastBackoffMs = 1000;

// gRPC checks a message's size when it is complete: one with a false length grows until then.
constexpr size_t kStreamQuota = size_t{64} << 20;
// For a channel shared by many streams: if readers stall, each stream may hold a message.
constexpr size_t kSharedQuota = size_t{256} << 20;

grpc::ChannelArguments Arguments(size_t memory_quota) {
  KeepGrpcRunning();
  grpc::ChannelArguments arguments;
  grpc::ResourceQuota quota("cbt-client");
  quota.Resize(memory_quota);
  arguments.SetResourceQuota(quota);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // A compressed message could have any size before its size is checked: none is decompressed, and
  // a call that receives one fails.
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  arguments.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  return arguments;
}

}  // namespace

std::shared_ptr<Channel> ConnectForOneStream(const Address& address, const ClientTlsOptions& tls) {
  return std::make_shared<GrpcChannel>(
      grpc::CreateCustomChannel(address.GrpcTarget(), ChannelCredentialsOf(tls),
                                Arguments(kStreamQuota)),
      GrpcChannel::Release::kAfterConnecting);
}

std::shared_ptr<Channel> ConnectForGood(const Address& address, const ClientTlsOptions& tls) {
  grpc::ChannelArguments arguments = Arguments(kSharedQuota);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLastBackoffMs);
  return std::make_shared<GrpcChannel>(
      grpc::CreateCustomChannel(address.GrpcTarget(), ChannelCredentialsOf(tls), arguments),
      GrpcChannel::Release::kAtOnce);
}

}  // namespace cbt::rpc

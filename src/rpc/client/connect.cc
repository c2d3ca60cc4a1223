#include "rpc/client/connect.h"

#include <utility>

#include "rpc/http2/channel.h"
#include "rpc/http2/client_loop.h"

namespace cbt::rpc {

absl::StatusOr<std::shared_ptr<Channel>> ConnectForOneStream(const net::Address& address,
                                                             const ClientTlsOptions& tls) {
  return http2::MakeChannel(address, tls, {.reconnect_at_once = true});
}

absl::StatusOr<std::shared_ptr<Channel>> ConnectForConsumer(const net::Address& address,
                                                            const ClientTlsOptions& tls) {
  return http2::MakeChannel(address, tls,
                            {.reconnect_at_once = true, .events_in_waiting_threads = true});
}

absl::StatusOr<std::shared_ptr<Channel>> ConnectForGood(const net::Address& address,
                                                        const ClientTlsOptions& tls) {
  return http2::MakeChannel(address, tls);
}

absl::StatusOr<std::vector<std::shared_ptr<Channel>>> ConnectInLoops(const net::Address& address,
                                                                     const ClientTlsOptions& tls,
                                                                     net::LoopThreads& loops) {
  std::vector<std::shared_ptr<Channel>> channels(loops.size());
  for (size_t i = 0; i < loops.size(); ++i) {
    // It does not own the threads: the last channel ends in one of them.
    auto loop = std::make_shared<const http2::ClientLoop>(
        http2::ClientLoop{&loops.loop(i), &loops.chunks(i)});
    auto channel = http2::MakeChannel(address, tls, {}, std::move(loop));
    if (!channel.ok()) return channel.status();
    channels[i] = *std::move(channel);
  }
  return channels;
}

}  // namespace cbt::rpc

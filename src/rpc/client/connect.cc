#include "rpc/client/connect.h"

#include "rpc/transport/http2/client/channel.h"

namespace cbt::rpc {

absl::StatusOr<std::shared_ptr<Channel>> ConnectForOneStream(const Address& address,
                                                             const ClientTlsOptions& tls) {
  return http2::MakeChannel(address, tls, {.reconnect_at_once = true});
}

absl::StatusOr<std::shared_ptr<Channel>> ConnectForConsumer(const Address& address,
                                                            const ClientTlsOptions& tls) {
  return http2::MakeChannel(address, tls,
                            {.reconnect_at_once = true, .events_in_waiting_threads = true});
}

absl::StatusOr<std::shared_ptr<Channel>> ConnectForGood(const Address& address,
                                                        const ClientTlsOptions& tls) {
  return http2::MakeChannel(address, tls);
}

}  // namespace cbt::rpc

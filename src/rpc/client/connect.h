// Channels to servers.
#ifndef CBT_RPC_CLIENT_CONNECT_H_
#define CBT_RPC_CLIENT_CONNECT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "cbt/rpc/options.h"
#include "rpc/transport/client_call.h"
#include "rpc/transport/listen_address.h"

namespace cbt::rpc {

// A channel for one stream: a channel's own backoff after a broken connection may be longer than
// the cursor's own waits. The cursor resumes streams, because it knows the offset.
// Errors: INVALID_ARGUMENT for a CA, certificate or key that can't be used, UNAVAILABLE and
//         RESOURCE_EXHAUSTED if the system lacks something. Connects with the first call.
absl::StatusOr<std::shared_ptr<Channel>> ConnectForOneStream(const Address& address,
                                                             const ClientTlsOptions& tls);

// The same for a consumer that waits in InboundStream::Next() or UnaryCall::Run(): its thread does
// the transport's work then, see Channel::HandleEvents().
absl::StatusOr<std::shared_ptr<Channel>> ConnectForConsumer(const Address& address,
                                                            const ClientTlsOptions& tls);

// A channel for any number of streams, which reconnects soon after the server is back. Errors as
// above.
absl::StatusOr<std::shared_ptr<Channel>> ConnectForGood(const Address& address,
                                                        const ClientTlsOptions& tls);

}  // namespace cbt::rpc

#endif  // CBT_RPC_CLIENT_CONNECT_H_

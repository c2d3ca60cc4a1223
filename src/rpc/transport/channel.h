// Channels to servers.
#ifndef CBT_RPC_TRANSPORT_CHANNEL_H_
#define CBT_RPC_TRANSPORT_CHANNEL_H_

#include <memory>

#include "cbt/rpc/options.h"
#include "rpc/transport/client_call.h"
#include "rpc/transport/listen_address.h"

namespace cbt::rpc {

// A channel for one stream: a channel's own backoff after a broken connection may be longer than
// the cursor's own waits. The cursor resumes streams, because it knows the offset. Releasing the
// channel waits up to a second for a pending connection attempt.
std::shared_ptr<Channel> ConnectForOneStream(const Address& address, const ClientTlsOptions& tls);

// A channel for any number of streams, which reconnects soon after the server is back.
std::shared_ptr<Channel> ConnectForGood(const Address& address, const ClientTlsOptions& tls);

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_CHANNEL_H_

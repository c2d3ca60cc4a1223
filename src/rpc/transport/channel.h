// Channels to servers.
#ifndef CBT_RPC_TRANSPORT_CHANNEL_H_
#define CBT_RPC_TRANSPORT_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>

#include "cbt/rpc/options.h"
#include "rpc/transport/listen_address.h"

namespace cbt::rpc {

// A channel for one stream: gRPC would keep a broken connection back for longer than the cursor's
// own waits. Streams are resumed by the cursor, which knows where. Letting go of it waits for a
// connection that is being made, up to a second.
std::shared_ptr<grpc::Channel> ConnectForOneStream(const Address& address,
                                                   const ClientTlsOptions& tls);

// A channel for as many streams as there are, that comes back soon after the server does.
std::shared_ptr<grpc::Channel> ConnectForGood(const Address& address, const ClientTlsOptions& tls);

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_CHANNEL_H_

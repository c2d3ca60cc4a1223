// Channels to servers.
#ifndef CBT_RPC_TRANSPORT_CHANNEL_H_
#define CBT_RPC_TRANSPORT_CHANNEL_H_

#include <grpcpp/channel.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "cbt/rpc/client.h"
#include "rpc/transport/listen_address.h"

namespace cbt::rpc {

// A channel for one stream: gRPC would keep a broken connection back for longer than the cursor's
// own waits. Streams are resumed by the cursor, which knows where. Letting go of it waits for a
// connection that is being made, up to a second.
std::shared_ptr<grpc::Channel> ConnectForOneStream(const Address& address,
                                                   const ClientTlsOptions& tls);

// A cursor over streams of channels that `connect` gives: one for each stream and each time that it
// is resumed. `request.address` and `request.tls` are not looked at. Otherwise as
// RemoteCursor::Open().
using ChannelMaker = std::function<std::shared_ptr<grpc::Channel>()>;
absl::StatusOr<std::unique_ptr<RemoteCursor>> OpenRemoteCursor(const ListRequest& request,
                                                               ChannelMaker connect);

// A channel for as many streams as there are, that comes back soon after the server does.
std::shared_ptr<grpc::Channel> ConnectForGood(const Address& address, const ClientTlsOptions& tls);

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_CHANNEL_H_

// Remote streams as cursors, over channels that the caller has.
#ifndef CBT_RPC_CLIENT_REMOTE_CURSOR_H_
#define CBT_RPC_CLIENT_REMOTE_CURSOR_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "cbt/rpc/client.h"
#include "grpcpp/channel.h"

namespace cbt::rpc {

// A cursor over streams of channels that `connect` gives: one for each stream and each time that it
// is resumed. `request.address` and `request.tls` are not looked at. Otherwise as
// RemoteCursor::Open().
using ChannelMaker = std::function<std::shared_ptr<grpc::Channel>()>;
absl::StatusOr<std::unique_ptr<RemoteCursor>> OpenRemoteCursor(const ListRequest& request,
                                                               ChannelMaker connect);

}  // namespace cbt::rpc

#endif  // CBT_RPC_CLIENT_REMOTE_CURSOR_H_

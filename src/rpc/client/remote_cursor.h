// Remote streams as cursors, over the caller's channels.
#ifndef CBT_RPC_CLIENT_REMOTE_CURSOR_H_
#define CBT_RPC_CLIENT_REMOTE_CURSOR_H_

#include <chrono>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "cbt/rpc/client.h"
#include "rpc/transport/client_call.h"

namespace cbt::rpc {

// Returns a cursor that gets its channels from `connect`: one for the stream and one for each
// resumption. Tries for `open_for` to get the first message. Ignores `request.address` and
// `request.tls`. Otherwise as RemoteCursor::Open().
using ChannelMaker = std::function<absl::StatusOr<std::shared_ptr<Channel>>()>;
absl::StatusOr<std::unique_ptr<RemoteCursor>> OpenRemoteCursor(const ListRequest& request,
                                                               ChannelMaker connect,
                                                               std::chrono::milliseconds open_for);

}  // namespace cbt::rpc

#endif  // CBT_RPC_CLIENT_REMOTE_CURSOR_H_

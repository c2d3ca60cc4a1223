// A remote provider over an existing channel.
#ifndef CBT_RPC_RELAY_REMOTE_PROVIDER_H_
#define CBT_RPC_RELAY_REMOTE_PROVIDER_H_

#include <chrono>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "cbt/provider.h"
#include "cbt/rpc/options.h"
#include "rpc/relay/plugin_errors.h"
#include "rpc/transport/client_call.h"

namespace cbt::rpc {

// As the public function, over `channel`; its error, if any, is returned by every call. A server
// that sends nothing for `stall` fails the call.
std::unique_ptr<SnapshotProvider> MakeRemoteProvider(
    absl::StatusOr<std::shared_ptr<Channel>> channel, Api api, const PluginErrors& errors,
    std::optional<std::chrono::milliseconds> stall);

}  // namespace cbt::rpc

#endif  // CBT_RPC_RELAY_REMOTE_PROVIDER_H_

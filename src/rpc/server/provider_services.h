// The services over a SnapshotProvider, without a transport.
#ifndef CBT_RPC_SERVER_PROVIDER_SERVICES_H_
#define CBT_RPC_SERVER_PROVIDER_SERVICES_H_

#include <vector>

#include "absl/status/status.h"
#include "cbt/executor.h"
#include "cbt/provider.h"
#include "cbt/rpc/server.h"
#include "rpc/server/open_streams.h"
#include "rpc/server/services.h"
#include "rpc/server/small_calls.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc {

// INVALID_ARGUMENT that names the option of the services that is out of range.
absl::Status CheckServiceOptions(const ServerOptions& options);

class ProviderServices {
 public:
  // `options` are valid by CheckServiceOptions(); those of the transport don't count. `registry`
  // and `small_calls` have the same options, and outlive this and its calls, as `provider` does.
  // Throws std::system_error if threads can't be started.
  ProviderServices(SnapshotProvider& provider, const ServerOptions& options, OpenStreams& registry,
                   SmallCalls& small_calls);

  const std::vector<Service*>& services() const noexcept { return services_.services(); }

 private:
  FeedFactory Feeds(SnapshotProvider& provider, const StreamOptions& stream);

  // First: the services use it.
  ThreadPool executor_;
  ServiceSet services_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_PROVIDER_SERVICES_H_

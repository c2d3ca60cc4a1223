// Another server's snapshots as a provider. Part of cbt::rpc.
#ifndef CBT_RPC_REMOTE_PROVIDER_H_
#define CBT_RPC_REMOTE_PROVIDER_H_

#include <memory>
#include <string>

#include "cbt/provider.h"
#include "cbt/rpc/api.h"
#include "cbt/rpc/options.h"
#include "cbt/rpc/telemetry.h"

namespace cbt::rpc {

// A provider that asks a server of any contract: for serving, checking and reshaping what somebody
// else has. Each answer is a RemoteCursor with all its checks; it resumes as one. All share one
// connection. An address that can't be one is an error of each answer. The texts of errors are
// ours, fit for clients; what the other server said goes to `log`, which must outlive the provider.
std::unique_ptr<SnapshotProvider> MakeRemoteProvider(const std::string& address, Api api,
                                                     const ClientTlsOptions& tls = {},
                                                     LogSink* log = nullptr);

}  // namespace cbt::rpc

#endif  // CBT_RPC_REMOTE_PROVIDER_H_

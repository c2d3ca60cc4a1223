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

// A provider that queries a server of any contract, to serve, check or reshape its data. Each
// cursor is a RemoteCursor with its checks; it resumes a broken stream for three seconds without
// progress, and leaves longer waits to its own clients. All share one connection. An invalid
// address is an error of every call. Error texts are written here and safe for clients; the
// server's own texts go to `log`, which must outlive the provider.
std::unique_ptr<SnapshotProvider> MakeRemoteProvider(const std::string& address, Api api,
                                                     const ClientTlsOptions& tls = {},
                                                     LogSink* log = nullptr);

}  // namespace cbt::rpc

#endif  // CBT_RPC_REMOTE_PROVIDER_H_

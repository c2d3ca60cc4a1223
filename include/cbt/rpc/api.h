// The gRPC contracts that the client, the server and the relay support.
#ifndef CBT_RPC_API_H_
#define CBT_RPC_API_H_

#include <optional>
#include <string_view>

#include "cbt/version.h"

namespace cbt::rpc {

enum class Api {
  kCsi,         // csi.v1.SnapshotMetadata: what a storage plugin serves
  kKubernetes,  // snapshotmetadata.SnapshotMetadata: what a sidecar serves to backup applications
  kSession,     // the proposal's first revision: GetAllocated and GetDelta with session tokens
  kPaged,       // the proposal's paged revision: unary ListSnapshotDeltas with page tokens
};

// "csi", "kubernetes", "session" or "paged".
std::string_view ApiName(Api api) noexcept;
std::optional<Api> ParseApi(std::string_view name) noexcept;

}  // namespace cbt::rpc

#endif  // CBT_RPC_API_H_

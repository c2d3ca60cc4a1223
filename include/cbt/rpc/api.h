// The contracts that cbt::rpc speaks, as client, as server and as relay.
#ifndef CBT_RPC_API_H_
#define CBT_RPC_API_H_

#include <optional>
#include <string_view>

namespace cbt::rpc {

enum class Api {
  kCsi,         // csi.v1.SnapshotMetadata: what a storage plugin serves
  kKubernetes,  // snapshotmetadata.SnapshotMetadata: what a sidecar serves to backup applications
  kSession,     // first revision of the proposal: GetAllocated and GetDelta with session tokens
  kPaged,       // paged revision of the proposal: unary ListSnapshotDeltas with page tokens
};

// "csi", "kubernetes", "session" or "paged".
std::string_view ApiName(Api api) noexcept;
std::optional<Api> ParseApi(std::string_view name) noexcept;

}  // namespace cbt::rpc

#endif  // CBT_RPC_API_H_

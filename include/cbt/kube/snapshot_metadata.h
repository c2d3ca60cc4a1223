// The metadata of a volume snapshot, found by the snapshot's name: the whole of what a backup
// client does in Kubernetes, in one call. Part of cbt::kube, where that was built with cbt::rpc.
#ifndef CBT_KUBE_SNAPSHOT_METADATA_H_
#define CBT_KUBE_SNAPSHOT_METADATA_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "cbt/kube/typed_objects.h"
#include "cbt/rpc/client.h"
#include "cbt/version.h"

namespace cbt::kube {

struct SnapshotMetadataRequest {
  // The VolumeSnapshot.
  std::string name_space = {};
  std::string snapshot = {};

  // For a delta, one of the two: the VolumeSnapshot of the base, in the same namespace and of the
  // same driver, or the handle that the storage knows it by.
  std::optional<std::string> base = {};
  std::optional<std::string> base_handle = {};

  // Who asks for metadata: a token is made for this account, which needs the right to `get`
  // volumesnapshots in the namespace. Unset: the account of the client itself.
  std::optional<ServiceAccountName> service_account = {};
  // 600 s at least. A token that expires while a stream runs is replaced when the stream is next
  // opened.
  std::chrono::seconds token_lifetime = std::chrono::seconds(600);

  // The CSI driver; empty: that of the snapshot, whose restoreSize then is the stream's capacity
  // unless that is set.
  std::string driver = {};

  // Everything else: starting offset, limits, callbacks. Address, contract, names, token and TLS
  // are filled in.
  rpc::ListRequest stream = {};
};

// Finds the driver (by VolumeSnapshot and VolumeSnapshotContent) and its SnapshotMetadataService,
// makes a token for the service's audience (TokenRequest), resolves the base, and returns the
// request for a stream: TLS trusts the service's CA alone. A snapshot and its content must point to
// each other by namespace, name and uid.
//
// Waits for the API server; not in the client's own thread. The request asks `client` for further
// tokens as long as a stream of it lives, and shares it.
// Errors: INVALID_ARGUMENT for an incomplete request; FAILED_PRECONDITION if the client's own
// account is wanted and it is no service account, for a snapshot of another driver, and where a
// snapshot and its content do not belong together; UNAVAILABLE for what is not ready or not bound
// yet; NOT_FOUND, PERMISSION_DENIED and others as the API server answers.
absl::StatusOr<rpc::ListRequest> ResolveSnapshotMetadata(std::shared_ptr<Client> client,
                                                         const SnapshotMetadataRequest& request);

// The same, and opens the stream. Errors: also those of RemoteCursor::Open().
absl::StatusOr<std::unique_ptr<rpc::RemoteCursor>> OpenSnapshotMetadata(
    std::shared_ptr<Client> client, const SnapshotMetadataRequest& request);

}  // namespace cbt::kube

#endif  // CBT_KUBE_SNAPSHOT_METADATA_H_

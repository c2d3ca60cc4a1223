// The stream that `k8s:NAMESPACE/SNAPSHOT` stands for.
#ifndef CBT_PROGRAMS_CBT_OPTIONS_KUBE_ADDRESS_H_
#define CBT_PROGRAMS_CBT_OPTIONS_KUBE_ADDRESS_H_

#include "absl/status/statusor.h"
#include "cbt/rpc/client.h"
#include "programs/cbt/options/remote_options.h"

namespace cbt::cli {

// `stream` with address, contract, names, token and TLS filled in, as the cluster has them; it
// keeps a client of the API server for further tokens. Waits for the API server. Thread-safe.
// Errors: INVALID_ARGUMENT for arguments that name nothing, also in a build without cbt::kube;
// those of LoadDefaultConfig() and ResolveSnapshotMetadata().
absl::StatusOr<rpc::ListRequest> FindInKube(const RemoteArguments& arguments,
                                            rpc::ListRequest stream);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OPTIONS_KUBE_ADDRESS_H_

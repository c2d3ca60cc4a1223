// Replaces the addresses that need Kubernetes in a build without it.

#include "absl/status/statusor.h"
#include "cbt/rpc/client.h"
#include "programs/cbt/options/kube_address.h"
#include "programs/cbt/options/remote_options.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {

absl::StatusOr<rpc::ListRequest> FindInKube(const RemoteArguments& arguments,
                                            rpc::ListRequest /*stream*/) {
  return UsageError(arguments.address, "not in this build: it was built without Kubernetes");
}

}  // namespace cbt::cli

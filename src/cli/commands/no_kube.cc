// Replaces the addresses that need Kubernetes in a build without it.

#include "absl/status/statusor.h"
#include "cbt/rpc/client.h"
#include "cli/options/kube_address.h"
#include "cli/options/remote_options.h"
#include "cli/support/status.h"

namespace cbt::cli {

absl::StatusOr<rpc::ListRequest> FindInKube(const RemoteArguments& arguments,
                                            const rpc::ListRequest& /*stream*/) {
  return UsageError(arguments.address, "not in this build: it was built without Kubernetes");
}

}  // namespace cbt::cli

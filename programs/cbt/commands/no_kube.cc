// Replaces the commands and addresses that need Kubernetes in a build without it.

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/rpc/client.h"
#include "programs/cbt/command.h"
#include "programs/cbt/options/kube_address.h"
#include "programs/cbt/options/remote_options.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {

int RunSidecarCommand(std::span<const std::string>) {
  return Report("sidecar", UsageError("not in this build", "it was built without Kubernetes"));
}

absl::StatusOr<rpc::ListRequest> FindInKube(const RemoteArguments& arguments,
                                            rpc::ListRequest /*stream*/) {
  return UsageError(arguments.address, "not in this build: it was built without Kubernetes");
}

void AddSidecar(CLI::App& app, Command& command) {
  CLI::App* const sub =
      app.add_subcommand("sidecar", "(not in this build, which has no Kubernetes)");
  sub->allow_extras();
  sub->callback([&command] { command = [] { return RunSidecarCommand({}); }; });
}

}  // namespace cbt::cli

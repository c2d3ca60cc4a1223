// `cbt-cluster`: the servers that run in a Kubernetes cluster. Called csi-snapshot-metadata it is
// the sidecar.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "programs/cluster/program/commands.h"

namespace cbt::cli {
namespace {

// A manifest of the Go program names it so, with the flags right behind.
constexpr std::string_view kSidecarName = "csi-snapshot-metadata";

std::optional<int> RunIfSidecar(int argc, char** argv) {
  if (argc < 1) return std::nullopt;
  std::string_view name = argv[0];
  name.remove_prefix(name.rfind('/') + 1);
  int first = 1;
  if (name != kSidecarName) {
    if (argc < 2 || std::string_view(argv[1]) != "sidecar") return std::nullopt;
    first = 2;
  }
  return RunSidecarCommand(std::vector<std::string>(argv + first, argv + argc));
}

}  // namespace
}  // namespace cbt::cli

int main(int argc, char** argv) {
  using namespace cbt::cli;  // NOLINT(google-build-using-namespace): as in main.cc
  return Run(argc, argv,
             {.name = "cbt-cluster",
              .description = "Changed-block tracking: servers of change metadata in Kubernetes",
              .commands = {{"Beside a CSI driver", {AddSidecar, AddHttpSidecar}},
                           {"For a whole cluster", {AddSessionManager, AddAggregatedApi}},
                           {"Buckets for applications (COSI)",
                            {AddCosiController, AddCosiSidecar, AddCosiNode, AddCosiDriver}}},
              .run_unparsed = RunIfSidecar});
}

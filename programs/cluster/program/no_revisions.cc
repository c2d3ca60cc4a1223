// Replaces the components that serve HTTPS in a build without Kubernetes or Boost.Beast.

#include <string>

#include "programs/cbt/support/status.h"
#include "programs/cluster/program/commands.h"

namespace cbt::cli {
namespace {

void AddMissing(CLI::App& app, Command& command, const std::string& name) {
  CLI::App* const sub =
      app.add_subcommand(name, "(not in this build, which has no Kubernetes or no Boost.Beast)");
  sub->allow_extras();
  sub->callback([name, &command] {
    command = [name] {
      return Report(
          name, UsageError("not in this build", "it was built without Kubernetes or Boost.Beast"));
    };
  });
}

}  // namespace

void AddSessionManager(CLI::App& app, Command& command) {
  AddMissing(app, command, "session-manager");
}

void AddAggregatedApi(CLI::App& app, Command& command) {
  AddMissing(app, command, "aggregated-api");
}

void AddHttpSidecar(CLI::App& app, Command& command) { AddMissing(app, command, "http-sidecar"); }

}  // namespace cbt::cli

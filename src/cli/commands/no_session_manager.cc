// Replaces `cbt session-manager` in a build without Kubernetes or Boost.Beast.

#include "cli/command.h"
#include "cli/support/status.h"

namespace cbt::cli {

void AddSessionManager(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "session-manager", "(not in this build, which has no Kubernetes or no Boost.Beast)");
  sub->allow_extras();
  sub->callback([&command] {
    command = [] {
      return Report(
          "session-manager",
          UsageError("not in this build", "it was built without Kubernetes or Boost.Beast"));
    };
  });
}

}  // namespace cbt::cli

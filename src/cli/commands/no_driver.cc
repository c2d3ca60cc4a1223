// Replaces `cbt driver` in a build without gRPC or tracked volumes.

#include "cli/command.h"
#include "cli/support/status.h"

namespace cbt::cli {

void AddDriver(CLI::App& app, Command& command, const DriverRunner&) {
  CLI::App* const sub =
      app.add_subcommand("driver", "(not in this build, which has no gRPC or no RapidJSON)");
  sub->allow_extras();
  sub->callback([&command] {
    command = [] {
      return Report("driver",
                    UsageError("not in this build", "it was built without gRPC or RapidJSON"));
    };
  });
}

}  // namespace cbt::cli

// Replaces `cbt-cluster cosi-driver` in a build without S3.

#include "programs/cbt/support/status.h"
#include "programs/cluster/program/commands.h"

namespace cbt::cli {

void AddCosiDriver(CLI::App& app, Command& command) {
  CLI::App* const sub =
      app.add_subcommand("cosi-driver", "(not in this build, which has no libcurl or no expat)");
  sub->allow_extras();
  sub->callback([&command] {
    command = [] {
      return Report("cosi-driver",
                    UsageError("not in this build", "it was built without libcurl or expat"));
    };
  });
}

}  // namespace cbt::cli

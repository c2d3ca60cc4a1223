// Replaces `cbtctl backup` in a build without libzstd, RapidJSON or OpenSSL.

#include "programs/cbt/command.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {

void AddBackup(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand("backup", "(not in this build, which has no libzstd)");
  sub->allow_extras();
  sub->callback([&command] {
    command = [] {
      return Report("backup", UsageError("not in this build",
                                         "it was built without libzstd, RapidJSON or cbt::rpc"));
    };
  });
}

}  // namespace cbt::cli

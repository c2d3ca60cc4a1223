// Stands in for `cbt serve` and `cbt list` where the build has no gRPC.

#include <string>

#include "cli/command.h"
#include "cli/status.h"

namespace cbt::cli {
namespace {

void AddMissing(CLI::App& app, Command& command, const std::string& name) {
  CLI::App* const sub = app.add_subcommand(name, "(not in this build: it has no gRPC)");
  sub->allow_extras();
  sub->callback([name, &command] {
    command = [name] {
      return Report(name, UsageError("not in this build", "it was made without gRPC"));
    };
  });
}

}  // namespace

void AddServe(CLI::App& app, Command& command) { AddMissing(app, command, "serve"); }
void AddList(CLI::App& app, Command& command) { AddMissing(app, command, "list"); }

}  // namespace cbt::cli

// Replaces `cbt driver` and `cbt volume-host` in a build without gRPC, libnbd or tracked volumes.

#include <string>

#include "programs/cbt/command.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

void AddMissing(CLI::App& app, Command& command, const std::string& name) {
  CLI::App* const sub =
      app.add_subcommand(name, "(not in this build, which has no gRPC, no libnbd or no RapidJSON)");
  sub->allow_extras();
  sub->callback([&command, name] {
    command = [name] {
      return Report(
          name, UsageError("not in this build", "it was built without gRPC, libnbd or RapidJSON"));
    };
  });
}

}  // namespace

void AddDriver(CLI::App& app, Command& command, const DriverPrograms&) {
  AddMissing(app, command, "driver");
}

void AddVolumeHost(CLI::App& app, Command& command, const DriverPrograms&) {
  AddMissing(app, command, "volume-host");
}

}  // namespace cbt::cli

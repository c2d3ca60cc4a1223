// `cbt-driver volume-host`: keeps the volumes of `cbt-driver driver` attached.

#include "programs/driver/program/volume_host.h"

#include <memory>

#include "programs/cbt/options/serving.h"
#include "programs/cbt/support/status.h"
#include "programs/driver/program/commands.h"

namespace cbt::cli {

void AddVolumeHost(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "volume-host", "Keep the volumes of a driver attached, so that it can be restarted");
  const auto arguments = std::make_shared<VolumeHostArguments>();
  sub->add_option("--state-dir", arguments->host.state_directory,
                  "The driver's directory of volumes; an absolute path")
      ->type_name("DIR")
      ->required();
  sub->add_option("--nbdkit-plugin", arguments->host.nbdkit_plugin,
                  "The plugin that serves attached volumes: its name or its path")
      ->type_name("NAME|PATH")
      ->capture_default_str();
  sub->add_flag("--background", arguments->background,
                "Write nowhere, and end once nothing is attached and no driver connected: how a "
                "driver starts it");
  AddLifeOptions(*sub, arguments->serving,
                 "Time to wait for a driver that keeps the volumes, after SIGTERM or SIGINT");
  sub->footer(
      "Example: in a Pod of its own beside the driver's\n"
      "  cbt-driver volume-host --state-dir /var/lib/cbt");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("volume-host", RunVolumeHost(*arguments)); };
  });
}

}  // namespace cbt::cli

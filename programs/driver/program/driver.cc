// `cbt-driver driver`: a CSI driver whose snapshots know their changes.

#include "programs/driver/program/driver.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/extent.h"
#include "programs/cbt/options/serving.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"
#include "programs/driver/program/commands.h"

namespace cbt::cli {

void AddDriver(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "driver", "Run a CSI driver of volumes that track their changes, on one node");
  const auto arguments = std::make_shared<DriverArguments>();
  driver::DriverOptions& driver = arguments->driver;
  sub->add_option("--endpoint", driver.endpoint, "Socket of the CSI services")
      ->type_name("unix:///PATH")
      ->capture_default_str();
  sub->add_option_function<uint32_t>(
         "--socket-group", [&driver](uint32_t group) { driver.socket_group = group; },
         "Number of the group that may connect to it; default: this process's own")
      ->type_name("GID")
      // The last number means no group.
      ->check(CLI::Range(uint32_t{0}, UINT32_MAX - 1));
  sub->add_option("--node-id", driver.node_id, "Name of this node")->type_name("N")->required();
  sub->add_option("--state-dir", driver.state_directory,
                  "Directory of the volumes, for this driver alone; an absolute path")
      ->type_name("DIR")
      ->required();
  sub->add_option("--driver-name", driver.driver_name, "Name of the plugin")
      ->type_name("NAME")
      ->capture_default_str();
  sub->add_option_function<std::string>(
         "--capacity",
         [&driver](const std::string& text) {
           const absl::StatusOr<uint64_t> bytes = ParseNumber(text, kMaxCapacity);
           if (!bytes.ok()) throw CLI::ValidationError("--capacity", MessageOf(bytes.status()));
           driver.capacity = *bytes;
         },
         "Most bytes of all volumes together; 0: no limit")
      ->type_name("BYTES")
      ->default_str("0");
  sub->add_option("--marks", driver.marks.count,
                  "How many moments of deleted snapshots a volume keeps, from which deltas can "
                  "still be asked for")
      ->type_name("N")
      ->capture_default_str();
  sub->add_option_function<uint32_t>(
         "--mark-days",
         [&driver](uint32_t days) { driver.marks.age = std::chrono::hours(24) * days; },
         "For how long after the snapshot was taken")
      ->type_name("DAYS")
      ->check(CLI::Range(0, 36'500))
      ->default_str("45");
  sub->add_option_function<std::string>(
         "--mark-bytes",
         [&driver](const std::string& text) {
           const absl::StatusOr<uint64_t> bytes = ParseNumber(text, kMaxCapacity);
           if (!bytes.ok()) throw CLI::ValidationError("--mark-bytes", MessageOf(bytes.status()));
           driver.marks.bytes = *bytes;
         },
         "Most bytes of the change maps that a volume keeps for its marks")
      ->type_name("BYTES")
      ->default_str("256M");
  AddPageOptions(*sub, driver.http_endpoint, driver.page_access);
  sub->add_option("--device", driver.device,
                  "What volumes are attached with: loop devices, which outlive their servers, or "
                  "the kernel's NBD client, whose devices fail with them")
      ->type_name("loop|nbd")
      ->transform(CLI::CheckedTransformer(std::map<std::string, driver::DeviceKind>{
          {"loop", driver::DeviceKind::kLoop}, {"nbd", driver::DeviceKind::kNbd}}))
      ->default_str("loop");
  sub->add_option("--volume-host", arguments->volume_host,
                  "The process that keeps volumes attached: own starts one that outlives the "
                  "driver where none runs, external waits for `cbt-driver volume-host`")
      ->type_name("own|external")
      ->check(CLI::IsMember({"own", "external"}))
      ->capture_default_str();
  sub->add_option("--nbdkit-plugin", arguments->nbdkit_plugin,
                  "For --volume-host own: the plugin that serves attached volumes, its name or "
                  "its path")
      ->type_name("NAME|PATH")
      ->capture_default_str();
  sub->add_flag("--events", arguments->events,
                "Write an Event at a volume's claim when its server does not run");
  sub->add_option("--kubeconfig", arguments->kubeconfig,
                  "For --events: the cluster; default: that of the Pod, or of KUBECONFIG")
      ->type_name("FILE");
  AddLogOptions(*sub, arguments->serving,
                "Log to stderr or --log-file: debug, info, warning (the default) or error");
  AddLifeOptions(*sub, arguments->serving, "Time for open calls to finish after SIGTERM or SIGINT");
  sub->footer(
      "Example: beside the sidecars of Kubernetes, in a Pod\n"
      "  cbt-driver driver --endpoint unix:///csi/csi.sock --node-id worker-1 --state-dir "
      "/var/lib/cbt");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("driver", RunDriver(*arguments)); };
  });
}

}  // namespace cbt::cli

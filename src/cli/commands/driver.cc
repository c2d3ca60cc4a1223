// `cbt driver`: a CSI driver whose snapshots know their changes.

#include "driver/driver.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/extent.h"
#include "cbt/ops/log.h"
#include "cli/command.h"
#include "cli/options/serving.h"
#include "cli/support/numbers.h"
#include "cli/support/status.h"

namespace cbt::cli {
namespace {

struct DriverArguments {
  driver::DriverOptions driver;
  ServingArguments serving;  // those that concern the process
};

absl::Status RunDriver(const DriverArguments& arguments) {
  const ServingArguments& serving = arguments.serving;
  if (absl::Status ready = CheckReadyDescriptor(serving); !ready.ok()) return ready;
  PrepareProcess();
  const absl::StatusOr<std::unique_ptr<rpc::LogSink>> log = ops::MakeLog(
      {.level = serving.log_level.value_or(rpc::LogLevel::kWarning), .file = serving.log_file});
  if (!log.ok()) return {log.status().code(), "--log-file: " + MessageOf(log.status())};
  driver::DriverOptions options = arguments.driver;
  options.log = log->get();
  const absl::StatusOr<std::unique_ptr<driver::Driver>> started = driver::Driver::Start(options);
  if (!started.ok()) return started.status();
  driver::Driver& running = **started;
  RunUntilStopped(serving, "driver", options.state_folder, running.address(),
                  [&running](std::chrono::milliseconds grace) { running.Shutdown(grace); });
  return absl::OkStatus();
}

}  // namespace

void AddDriver(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "driver", "Run a CSI driver of volumes that track their changes, on one node");
  const auto arguments = std::make_shared<DriverArguments>();
  driver::DriverOptions& driver = arguments->driver;
  sub->add_option("--endpoint", driver.endpoint, "Socket of the CSI services")
      ->type_name("unix:///PATH")
      ->capture_default_str();
  sub->add_option("--node-id", driver.node_id, "Name of this node")->type_name("N")->required();
  sub->add_option("--state-dir", driver.state_folder,
                  "Folder of the volumes, for this driver alone; an absolute path")
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
  sub->add_option("--http-endpoint", driver.http_endpoint,
                  "Address of /metrics, /healthz, /livez and /readyz; default: none")
      ->type_name("HOST:PORT");
  sub->add_option("--nbdkit-plugin", driver.nbdkit_plugin,
                  "The plugin that serves attached volumes: its name or its path")
      ->type_name("NAME|PATH")
      ->capture_default_str();
  AddLogOptions(*sub, arguments->serving,
                "Log to stderr or --log-file: debug, info, warning (the default) or error");
  AddLifeOptions(*sub, arguments->serving, "Time for open calls to finish after SIGTERM or SIGINT");
  sub->footer(
      "Example: beside the sidecars of Kubernetes, in a Pod\n"
      "  cbt driver --endpoint unix:///csi/csi.sock --node-id worker-1 --state-dir /var/lib/cbt");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("driver", RunDriver(*arguments)); };
  });
}

}  // namespace cbt::cli

// `cbtctl relay`: the sidecar.

#include "cbt/rpc/relay.h"

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "cbt/ops/log.h"
#include "cbt/rpc/telemetry.h"
#include "programs/cbt/command.h"
#include "programs/cbt/options/serving.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

struct RelayArguments {
  ServingArguments serving;
  std::string plugin;
  bool no_check = false;
  bool require_message = false;
  std::chrono::milliseconds plugin_stall_time = rpc::RelayOptions().plugin_stall_timeout;
};

// Only that the plugin failed: clients are given the number of a record, not its text.
class PluginFailures final : public rpc::LogSink {
 public:
  explicit PluginFailures(rpc::LogSink& log) noexcept : log_(log) {}
  bool Wants(rpc::LogLevel level) const noexcept override { return log_.Wants(level); }
  void Write(rpc::LogLevel level, std::string_view event,
             std::span<const rpc::LogField> fields) noexcept override {
    if (event == "plugin failed") log_.Write(level, event, fields);
  }

 private:
  rpc::LogSink& log_;
};

absl::Status RunRelay(const RelayArguments& arguments) {
  const ServingArguments& serving = arguments.serving;
  if (absl::Status ready = CheckReadyDescriptor(serving); !ready.ok()) return ready;
  PrepareProcess();
  absl::StatusOr<ServingParts> parts = PrepareServing(serving);
  if (!parts.ok()) return parts.status();
  std::optional<PluginFailures> failures;
  if (parts->log == nullptr && !CurrentVerbosity().quiet) {
    auto log = ops::MakeLog({.level = rpc::LogLevel::kWarning});
    if (!log.ok()) return log.status();
    parts->log = *std::move(log);
    parts->telemetry.log = &failures.emplace(*parts->log);
  }
  rpc::RelayOptions options = OptionsOf<rpc::RelayOptions>(serving, *parts);
  options.plugin = arguments.plugin;
  options.check_tuples = !arguments.no_check;
  options.require_message = arguments.require_message;
  options.plugin_stall_timeout = arguments.plugin_stall_time;
  const absl::StatusOr<std::unique_ptr<rpc::Relay>> relay = rpc::Relay::Start(options);
  if (!relay.ok()) return relay.status();
  RunUntilStopped(serving, "relay", arguments.plugin, (*relay)->address(),
                  [&relay](std::chrono::milliseconds grace) { (*relay)->Shutdown(grace); });
  return absl::OkStatus();
}

}  // namespace

void AddRelay(CLI::App& app, Command& command) {
  CLI::App* const sub =
      app.add_subcommand("relay", "Relay requests of backup applications to a storage plugin");
  const auto arguments = std::make_shared<RelayArguments>();
  sub->add_option("--plugin", arguments->plugin, "The plugin's socket: unix:///path or host:port")
      ->type_name("ADDR")
      ->required();
  AddServingOptions(*sub, arguments->serving, {rpc::Api::kKubernetes});
  sub->add_flag("--no-check", arguments->no_check, "Forward tuples without checking them");
  sub->add_flag(
      "--require-message", arguments->require_message,
      "Refuse a plugin's answer without a message, instead of taking it for an empty one");
  AddTime(*sub, "--plugin-stall-time", arguments->plugin_stall_time,
          "End a stream whose plugin sends nothing for this long; 0: no limit", "1800");
  sub->footer(
      "Example: the Kubernetes API in front of a plugin on this host\n"
      "  cbtctl relay --listen 0.0.0.0:50051 --tls-cert tls.crt --tls-key tls.key \\\n"
      "    --plugin unix:///csi/csi.sock --tokens tokens --snapshots snapshots");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("relay", RunRelay(*arguments)); };
  });
}

}  // namespace cbt::cli

// `cbt-cluster sidecar`: a drop-in for the Go program csi-snapshot-metadata.

#include "programs/sidecar/sidecar.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cbt/ops/log.h"
#include "cbt/rpc/access.h"
#include "cbt/version.h"
#include "programs/cbt/options/go_flags.h"
#include "programs/cbt/options/serving.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/support/status.h"
#include "programs/cluster/program/commands.h"
#include "programs/cluster/program/sidecar_flags.h"

namespace cbt::cli {
namespace {

constexpr char kExample[] =
    "Example: beside a plugin, in a Pod\n"
    "  cbt-cluster sidecar --csi-address=/csi/csi.sock --tls-cert=/certs/tls.crt "
    "--tls-key=/certs/tls.key";

int PrintHelp(const std::string& text) {
  Output output(STDOUT_FILENO, "stdout");
  output.Append(text);
  return Report("sidecar", output.Close());
}

absl::Status RunSidecar(const SidecarFlags& flags) {
  using kube::sidecar::Sidecar;
  const ServingArguments& serving = flags.serving;
  if (absl::Status ready = CheckReadyDescriptor(serving); !ready.ok()) return ready;
  PrepareProcess({SIGINT, SIGTERM, SIGHUP, SIGQUIT});
  std::vector<std::string> warnings;
  absl::StatusOr<kube::sidecar::Options> options = flags.ToOptions(warnings);
  if (!options.ok()) return options.status();
  for (const std::string& warning : warnings) Note("sidecar", "warning: " + warning);
  std::unique_ptr<rpc::SessionStore> sessions;
  if (!serving.sessions.empty()) {
    auto made = rpc::MakeFileSessions(serving.sessions);
    if (!made.ok()) {
      return {made.status().code(), absl::StrCat("-sessions: ", made.status().message())};
    }
    sessions = *std::move(made);
    options->relay.service.sessions = sessions.get();
  }
  const rpc::LogLevel level =
      serving.log_level.value_or(flags.v >= 4 ? rpc::LogLevel::kDebug : rpc::LogLevel::kInfo);
  absl::StatusOr<std::unique_ptr<rpc::LogSink>> log =
      ops::MakeLog({.level = level, .file = serving.log_file});
  if (!log.ok()) return {log.status().code(), absl::StrCat("-log-file: ", log.status().message())};
  options->log = log->get();
  const std::string plugin = options->relay.plugin;
  const absl::StatusOr<std::unique_ptr<Sidecar>> started = Sidecar::Start(*std::move(options));
  if (!started.ok()) return started.status();
  Sidecar& sidecar = **started;
  RunUntilStopped(serving, "sidecar", plugin, sidecar.address(),
                  [&sidecar](std::chrono::milliseconds grace) { sidecar.Shutdown(grace); },
                  {.ready = [&sidecar] { return sidecar.ready(); },
                   .ended = [&sidecar] { return !sidecar.failure().ok(); }});
  return sidecar.failure();
}

}  // namespace

int RunSidecarCommand(std::span<const std::string> arguments) {
  SidecarFlags sidecar;
  GoFlags flags;
  sidecar.AddTo(flags);
  // As every command has them.
  flags.Add("quiet", &CurrentVerbosity().quiet, "Print errors only");
  flags.Add("q", &CurrentVerbosity().quiet, "The same");
  flags.Add("no-progress", &CurrentVerbosity().no_progress, "Show no progress bar");
  const absl::StatusOr<GoFlags::Outcome> outcome = flags.Parse(arguments);
  if (!outcome.ok()) {
    PrintLine("sidecar",
              "usage: " + MessageOf(outcome.status()) + " (see cbt-cluster sidecar --help)");
    return kExitUsage;
  }
  if (*outcome == GoFlags::Outcome::kHelp) {
    return PrintHelp(
        absl::StrCat("Serve snapshot metadata in a Kubernetes cluster, beside a storage plugin\n\n"
                     "Usage: cbt-cluster sidecar [flags]\n\nFlags, with one dash or two:\n",
                     flags.Usage(), "  --help, -h\n        Print this help\n\n", kExample, "\n"));
  }
  if (sidecar.version)
    return PrintHelp(absl::StrCat("csi-snapshot-metadata (libcbt) ", kVersion, "\n"));
  return Report("sidecar", RunSidecar(sidecar));
}

// For help, man pages and completions: the parser never sees this command's arguments.
void AddSidecar(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "sidecar", "Serve snapshot metadata in a Kubernetes cluster, beside a storage plugin");
  const auto unused = std::make_shared<std::string>();
  SidecarFlags sidecar;
  GoFlags flags;
  sidecar.AddTo(flags);
  for (const GoFlags::Flag& flag : flags.flags()) {
    if (flag.type.empty()) {
      sub->add_flag("--" + flag.name, flag.usage);
    } else {
      sub->add_option("--" + flag.name, *unused, flag.usage)
          ->type_name(flag.type)
          ->default_str(flag.shown);
    }
  }
  sub->footer(kExample);
  sub->callback([unused, &command] { command = [] { return kExitUsage; }; });
}

}  // namespace cbt::cli

// `cbt-cluster session-manager`: opens sessions of the proposal's first revision in a cluster.

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "programs/cbt/support/status.h"
#include "programs/cluster/program/commands.h"
#include "programs/cluster/program/component_options.h"
#include "programs/revisions/sessions/manager.h"

namespace cbt::cli {
namespace {

struct SessionManagerArguments {
  ComponentArguments component = {.options = {.lease = "cbt-session-manager"}};
  std::chrono::milliseconds session_time = kube::sessions::Options().session_time;
  std::chrono::milliseconds scan_time = kube::sessions::Options().scan_time;
};

absl::Status RunManager(SessionManagerArguments& arguments) {
  using kube::sessions::Manager;
  ComponentArguments& component = arguments.component;
  if (arguments.session_time < std::chrono::seconds(1)) {
    return UsageError("--session-time", "expected at least 1 s");
  }
  absl::StatusOr<ComponentParts> parts = PrepareComponent(component);
  if (!parts.ok()) return parts.status();
  kube::sessions::Options options = {.cluster = std::move(parts->cluster),
                                     .webhook = component.server,
                                     .scan_time = arguments.scan_time,
                                     .component = component.options};
  options.session_time = std::chrono::ceil<std::chrono::seconds>(arguments.session_time);
  options.client.user_agent = "cbt-session-manager";
  const absl::StatusOr<std::unique_ptr<Manager>> started = Manager::Start(std::move(options));
  if (!started.ok()) return started.status();
  Manager& manager = **started;
  RunUntilStopped(component.serving, "session-manager", "the webhook of sessions",
                  manager.address(),
                  [&manager](std::chrono::milliseconds grace) { manager.Shutdown(grace); },
                  {.ready = [&manager] { return manager.ready(); }});
  return absl::OkStatus();
}

}  // namespace

void AddSessionManager(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "session-manager", "Open sessions of the proposal's first revision in a Kubernetes cluster");
  const auto arguments = std::make_shared<SessionManagerArguments>();
  AddDuration(*sub, "--session-time", arguments->session_time,
              "How long a session is open: 1h, 90m, or seconds", "1h");
  AddDuration(*sub, "--scan-time", arguments->scan_time,
              "How often to look for pending requests and expired sessions", "10s");
  AddComponentOptions(
      *sub, arguments->component,
      {.listener = "the webhook",
       .leader = "Act only while this process holds the Lease cbt-session-manager",
       .drain = "Time for reviews under way to be answered after SIGTERM or SIGINT"});
  sub->footer(
      "Example: in a Pod\n"
      "  cbt-cluster session-manager --listen :8443 --tls-cert /certs/tls.crt --tls-key "
      "/certs/tls.key "
      "--session-time 1h --leader-elect");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("session-manager", RunManager(*arguments)); };
  });
}

}  // namespace cbt::cli

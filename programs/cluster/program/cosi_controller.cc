// `cbt-cluster cosi-controller`: requests for buckets and for access to them, in a cluster.

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "programs/cbt/support/status.h"
#include "programs/cluster/program/commands.h"
#include "programs/cluster/program/component_options.h"
#include "programs/cosi/controller/controller.h"

namespace cbt::cli {
namespace {

struct CosiControllerArguments {
  ComponentArguments component = {.options = {.lease = "cbt-cosi-controller"}};
  std::chrono::milliseconds revoke_time = kube::cosi::ControllerOptions().revoke_time;
  std::chrono::milliseconds sweep_time = kube::cosi::ControllerOptions().sweep_time;
};

absl::Status RunController(CosiControllerArguments& arguments) {
  using kube::cosi::Controller;
  ComponentArguments& component = arguments.component;
  absl::StatusOr<ComponentParts> parts = PrepareComponent(component);
  if (!parts.ok()) return parts.status();
  kube::cosi::ControllerOptions options;
  options.cluster = std::move(parts->cluster);
  options.revoke_time = arguments.revoke_time;
  options.sweep_time = arguments.sweep_time;
  options.component = component.options;
  options.client.user_agent = "cbt-cosi-controller";
  const absl::StatusOr<std::unique_ptr<Controller>> started = Controller::Start(std::move(options));
  if (!started.ok()) return started.status();
  Controller& controller = **started;
  RunUntilStopped(component.serving, "cosi-controller", "the pages of the controller",
                  component.options.http_endpoint,
                  [&controller](std::chrono::milliseconds grace) { controller.Shutdown(grace); },
                  {.ready = [&controller] { return controller.ready(); }});
  return absl::OkStatus();
}

}  // namespace

void AddCosiController(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "cosi-controller",
      "Bind requests for buckets, and for access to them, in a Kubernetes cluster");
  const auto arguments = std::make_shared<CosiControllerArguments>();
  AddDuration(*sub, "--revoke-time", arguments->revoke_time,
              "How long a forced deletion waits for the driver to revoke an access", "1m");
  AddDuration(*sub, "--sweep-time", arguments->sweep_time,
              "How often to look for finalizers of Pods that are gone", "1m");
  AddProcessOptions(*sub, arguments->component,
                    {.listener = nullptr,
                     .leader = "Act only while this process holds the Lease cbt-cosi-controller",
                     .drain = "Has no effect: what is worked on is always finished"});
  sub->footer(
      "Example: in a Pod\n"
      "  cbt-cluster cosi-controller --leader-elect --http-endpoint :8080");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("cosi-controller", RunController(*arguments)); };
  });
}

}  // namespace cbt::cli

// `cbt-cluster cosi-sidecar`: the sidecar of a COSI driver.

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "programs/cbt/support/status.h"
#include "programs/cluster/program/commands.h"
#include "programs/cluster/program/component_options.h"
#include "programs/cosi/sidecar/sidecar.h"

namespace cbt::cli {
namespace {

struct CosiSidecarArguments {
  ComponentArguments component = {};
  std::string driver = "unix:/var/lib/cosi/cosi.sock";
  std::string name_space = {};
  std::chrono::milliseconds call_time = kube::cosi::SidecarOptions().call_time;
};

absl::Status RunCosiSidecar(CosiSidecarArguments& arguments) {
  using kube::cosi::Sidecar;
  ComponentArguments& component = arguments.component;
  absl::StatusOr<ComponentParts> parts = PrepareComponent(component);
  if (!parts.ok()) return parts.status();
  kube::cosi::SidecarOptions options;
  options.cluster = std::move(parts->cluster);
  options.driver_address = arguments.driver;
  options.name_space = arguments.name_space;
  options.call_time = arguments.call_time;
  options.component = component.options;
  options.client.user_agent = "cbt-cosi-sidecar";
  const absl::StatusOr<std::unique_ptr<Sidecar>> started = Sidecar::Start(std::move(options));
  if (!started.ok()) return started.status();
  Sidecar& sidecar = **started;
  RunUntilStopped(component.serving, "cosi-sidecar", "the pages of the sidecar",
                  component.options.http_endpoint,
                  [&sidecar](std::chrono::milliseconds grace) { sidecar.Shutdown(grace); },
                  {.ready = [&sidecar] { return sidecar.ready(); }});
  return absl::OkStatus();
}

}  // namespace

void AddCosiSidecar(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "cosi-sidecar", "Create buckets, and grant access to them, by the COSI driver beside it");
  const auto arguments = std::make_shared<CosiSidecarArguments>();
  sub->add_option("--driver", arguments->driver, "Socket of the driver")
      ->type_name("unix:PATH")
      ->capture_default_str();
  sub->add_option("--namespace", arguments->name_space,
                  "Namespace of the Secrets; default: that of the Pod or of the kubeconfig")
      ->type_name("NAME");
  AddDuration(*sub, "--call-time", arguments->call_time, "Most time for a call of the driver",
              "1m");
  AddProcessOptions(*sub, arguments->component,
                    {.listener = nullptr,
                     .leader = "Act only while this process holds the Lease cosi-sidecar-DRIVER",
                     .drain = "Has no effect: calls of the driver end at once, and are repeated"});
  sub->footer(
      "Example: beside a driver in a Pod\n"
      "  cbt-cluster cosi-sidecar --driver unix:/socket/cosi.sock --leader-elect "
      "--http-endpoint :8080");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("cosi-sidecar", RunCosiSidecar(*arguments)); };
  });
}

}  // namespace cbt::cli

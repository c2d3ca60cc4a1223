// `cbt-cluster aggregated-api`: the aggregated API server of the proposal's second revision.

#include "programs/revisions/aggregated/aggregated_api.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "programs/cbt/support/status.h"
#include "programs/cluster/program/commands.h"
#include "programs/cluster/program/component_options.h"
#include "programs/revisions/aggregated/api/delta_page.h"

namespace cbt::cli {
namespace {

struct AggregatedApiArguments {
  ComponentArguments component = {.options = {.lease = "cbt-aggregated-api"}};
  kube::aggregated::Options api = {};  // what is its own
};

absl::Status RunAggregatedApi(AggregatedApiArguments& arguments) {
  using kube::aggregated::AggregatedApi;
  ComponentArguments& component = arguments.component;
  absl::StatusOr<ComponentParts> parts = PrepareComponent(component);
  if (!parts.ok()) return parts.status();
  kube::aggregated::Options options = std::move(arguments.api);
  options.cluster = std::move(parts->cluster);
  options.server = component.server;
  options.component = component.options;
  options.client.user_agent = "cbt-aggregated-api";
  // The answer of a page, with time to send it.
  options.server.handler_time = options.page_time + std::chrono::seconds(10);
  const absl::StatusOr<std::unique_ptr<AggregatedApi>> started =
      AggregatedApi::Start(std::move(options));
  if (!started.ok()) return started.status();
  AggregatedApi& server = **started;
  RunUntilStopped(component.serving, "aggregated-api", "VolumeSnapshotDelta", server.address(),
                  [&server](std::chrono::milliseconds grace) { server.Shutdown(grace); },
                  {.ready = [&server] { return server.ready(); }});
  return absl::OkStatus();
}

}  // namespace

void AddAggregatedApi(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "aggregated-api",
      "Serve VolumeSnapshotDelta of the proposal's second revision in a Kubernetes cluster");
  const auto arguments = std::make_shared<AggregatedApiArguments>();
  kube::aggregated::Options& api = arguments->api;
  sub->add_option("--client-cert", api.client_certificate_file,
                  "Certificate that the HTTPS services of drivers know this server by (PEM)")
      ->type_name("FILE")
      ->required();
  sub->add_option("--client-key", api.client_key_file, "Its private key (PEM)")
      ->type_name("FILE")
      ->required();
  sub->add_option("--page", api.page_blocks, "Blocks of a page whose request names no limit")
      ->type_name("N")
      ->check(CLI::Range(uint64_t{1}, kube::aggregated::kMaxPageBlocks))
      ->capture_default_str();
  AddDuration(*sub, "--page-time", api.page_time, "Time for a page, with all attempts", "45s");
  AddDuration(*sub, "--retry-time", api.retry_time,
              "How long a driver's service that does not answer is asked again, within that",
              "20s");
  sub->add_option("--qps", api.qps,
                  "Requests a second, which the users that ask share evenly; 0: no limit")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  sub->add_option("--burst", api.burst, "Requests at once after a pause, shared in the same way")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  sub->add_option("--threads", api.threads, "Requests that are worked on at once")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  AddDuration(*sub, "--check-time", api.check_time,
              "How often to look whether the services of drivers answer", "30s");
  AddComponentOptions(
      *sub, arguments->component,
      {.listener = "the API server",
       .leader = "Write conditions of DriverDiscovery objects only while this process holds the "
                 "Lease cbt-aggregated-api",
       .drain = "Time for requests under way to be answered after SIGTERM or SIGINT"});
  sub->footer(
      "Example: in a Pod\n"
      "  cbt-cluster aggregated-api --listen :8443 --tls-cert /certs/tls.crt --tls-key "
      "/certs/tls.key "
      "--client-cert /client/tls.crt --client-key /client/tls.key --leader-elect");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("aggregated-api", RunAggregatedApi(*arguments)); };
  });
}

}  // namespace cbt::cli

// `cbt-cluster http-sidecar`: the HTTPS service of a driver in the proposal's second revision.

#include "programs/revisions/http_sidecar/http_sidecar.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "programs/cbt/options/choices.h"
#include "programs/cbt/support/status.h"
#include "programs/cluster/program/commands.h"
#include "programs/cluster/program/component_options.h"

namespace cbt::cli {
namespace {

using kube::aggregated::DriverDiscovery;
using kube::aggregated::ServiceReference;

struct HttpSidecarArguments {
  ComponentArguments component = {.options = {.lease = "cbt-http-sidecar"}};
  kube::http_sidecar::Options sidecar;  // what is its own
  std::string publish_service;
  std::optional<uint64_t> block_size;
};

// NAMESPACE/NAME[:PORT][/PATH]
absl::StatusOr<ServiceReference> ParseService(const std::string& text) {
  ServiceReference service;
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 2));
  const auto usage = [] {
    return UsageError("--publish-service", "expected NAMESPACE/NAME[:PORT][/PATH]");
  };
  if (parts.size() < 2 || parts[0].empty() || parts[1].empty()) return usage();
  service.name_space = parts[0];
  const size_t colon = parts[1].find(':');
  service.name = parts[1].substr(0, colon);
  if (colon != std::string::npos && (!absl::SimpleAtoi(parts[1].substr(colon + 1), &service.port) ||
                                     service.port < 1 || service.port > 65535)) {
    return usage();
  }
  if (parts.size() == 3) service.path = "/" + parts[2];
  return service;
}

absl::Status ReadPublication(HttpSidecarArguments& arguments) {
  DriverDiscovery& discovery = arguments.sidecar.discovery;
  if (!arguments.publish_service.empty()) {
    absl::StatusOr<ServiceReference> service = ParseService(arguments.publish_service);
    if (!service.ok()) return service.status();
    discovery.service = *std::move(service);
  }
  if (!discovery.url.empty()) {
    const auto endpoint = kube::aggregated::ParseHttpsUrl(discovery.url);
    if (!endpoint.ok()) return UsageError("--publish", MessageOf(endpoint.status()));
  }
  if (arguments.block_size.has_value()) discovery.block_size = *arguments.block_size;
  return absl::OkStatus();
}

absl::Status RunHttpSidecar(HttpSidecarArguments& arguments) {
  using kube::http_sidecar::HttpSidecar;
  ComponentArguments& component = arguments.component;
  if (absl::Status status = ReadPublication(arguments); !status.ok()) return status;
  absl::StatusOr<ComponentParts> parts = PrepareComponent(component);
  if (!parts.ok()) return parts.status();
  kube::http_sidecar::Options options = std::move(arguments.sidecar);
  options.cluster = std::move(parts->cluster);
  options.server = component.server;
  options.component = component.options;
  if (options.plugin.starts_with('/')) options.plugin = "unix://" + options.plugin;
  options.client.user_agent = "cbt-http-sidecar";
  // The answer of a page, with time to send it.
  options.server.handler_time = options.page_time + std::chrono::seconds(10);
  const absl::StatusOr<std::unique_ptr<HttpSidecar>> started =
      HttpSidecar::Start(std::move(options));
  if (!started.ok()) return started.status();
  HttpSidecar& server = **started;
  RunUntilStopped(component.serving, "http-sidecar", "pages of changed blocks", server.address(),
                  [&server](std::chrono::milliseconds grace) { server.Shutdown(grace); },
                  {.ready = [&server] { return server.ready(); },
                   .ended = [&server] { return !server.failure().ok(); }});
  return server.failure();
}

}  // namespace

void AddHttpSidecar(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "http-sidecar",
      "Serve a CSI plugin's changed blocks to cbt-cluster aggregated-api, as JSON over HTTPS");
  const auto arguments = std::make_shared<HttpSidecarArguments>();
  kube::http_sidecar::Options& sidecar = arguments->sidecar;
  sub->add_option("--csi-address", sidecar.plugin, "The plugin's socket: unix:///PATH or /PATH")
      ->type_name("ADDRESS")
      ->default_val("unix:///run/csi/socket");
  sub->add_option("--client-ca", sidecar.client_ca_file,
                  "Authorities of the certificates of callers (PEM); read again when it changes")
      ->type_name("FILE")
      ->required();
  sub->add_option("--client-name", sidecar.client_name,
                  "Common name that a caller's certificate must have; default: any")
      ->type_name("NAME");
  CLI::Option* const url =
      sub->add_option("--publish", sidecar.discovery.url,
                      "Keep the driver's DriverDiscovery object, with this URL")
          ->type_name("https://HOST[:PORT][/PATH]");
  sub->add_option("--publish-service", arguments->publish_service, "The same with a Service")
      ->type_name("NAMESPACE/NAME[:PORT][/PATH]")
      ->excludes(url);
  sub->add_option(
         "--publish-ca", sidecar.ca_file,
         "Authority that the object names (PEM); default: ca.crt beside the certificate, or "
         "the certificate")
      ->type_name("FILE");
  AddBlockSizeOption(*sub, arguments->block_size);
  sub->get_option("--block-size")
      ->description(
          "Size of the blocks that offsets count, a power of two from 512 to 64M; it can't "
          "change once it is published");
  AddDuration(*sub, "--page-time", sidecar.page_time, "Time for a page", "25s");
  sub->add_option("--threads", sidecar.threads, "Pages that are made at once")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  sub->add_option("--lease", arguments->component.options.lease,
                  "Name of the Lease; another one for each driver of a namespace")
      ->type_name("NAME")
      ->capture_default_str();
  AddComponentOptions(
      *sub, arguments->component,
      {.listener = "the service",
       .leader = "Serve only while this process holds the Lease; others are not ready",
       .drain = "Time for pages under way to be answered after SIGTERM or SIGINT"});
  sub->footer(
      "Example: in the driver's Pod\n"
      "  cbt-cluster http-sidecar --csi-address unix:///csi/csi.sock --listen :8443 "
      "--tls-cert /certs/tls.crt --tls-key /certs/tls.key --client-ca /clients/ca.crt "
      "--client-name cbt-aggregated-api --publish-service csi-driver/http-sidecar --leader-elect");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("http-sidecar", RunHttpSidecar(*arguments)); };
  });
}

}  // namespace cbt::cli

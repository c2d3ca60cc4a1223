// `cbt session-manager`: opens sessions of the proposal's first revision in a cluster.

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cbt/kube/config.h"
#include "cbt/ops/log.h"
#include "cli/command.h"
#include "cli/options/go_flags.h"
#include "cli/options/serving.h"
#include "cli/support/numbers.h"
#include "cli/support/status.h"
#include "kube/sessions/manager.h"

namespace cbt::cli {
namespace {

struct SessionManagerArguments {
  kube::sessions::Options manager;
  std::string kubeconfig;
  std::chrono::milliseconds session_time = kube::sessions::Options().session_time;
  ServingArguments serving;  // those that concern the process
};

// A time as Go and Kubernetes write it (1h30m), or in seconds as other commands take it.
void AddDuration(CLI::App& sub, const char* option, std::chrono::milliseconds& time,
                 const char* what, const char* shown) {
  sub.add_option_function<std::string>(
         option,
         [option, &time](const std::string& text) {
           absl::StatusOr<std::chrono::milliseconds> parsed = ParseGoDuration(text);
           if (!parsed.ok()) parsed = ParseSeconds(text);
           if (!parsed.ok()) throw CLI::ValidationError(option, MessageOf(parsed.status()));
           time = *parsed;
         },
         what)
      ->type_name("DURATION")
      ->default_str(shown);
}

absl::Status RunManager(const SessionManagerArguments& arguments) {
  using kube::sessions::Manager;
  const ServingArguments& serving = arguments.serving;
  if (absl::Status ready = CheckReadyDescriptor(serving); !ready.ok()) return ready;
  if (arguments.session_time < std::chrono::seconds(1)) {
    return UsageError("--session-time", "expected at least 1 s");
  }
  PrepareProcess();
  const absl::StatusOr<std::unique_ptr<rpc::LogSink>> log = ops::MakeLog(
      {.level = serving.log_level.value_or(rpc::LogLevel::kInfo), .file = serving.log_file});
  if (!log.ok()) return {log.status().code(), "--log-file: " + MessageOf(log.status())};
  absl::StatusOr<kube::Config> cluster = kube::LoadDefaultConfig(arguments.kubeconfig);
  if (!cluster.ok()) {
    return {cluster.status().code(), "kubeconfig: " + MessageOf(cluster.status())};
  }
  kube::sessions::Options options = {.client = arguments.manager.client,
                                     .webhook = arguments.manager.webhook,
                                     .scan_time = arguments.manager.scan_time,
                                     .leader_election = arguments.manager.leader_election,
                                     .lease_namespace = arguments.manager.lease_namespace,
                                     .identity = arguments.manager.identity,
                                     .http_endpoint = arguments.manager.http_endpoint,
                                     .log = log->get()};
  options.session_time = std::chrono::ceil<std::chrono::seconds>(arguments.session_time);
  options.client.user_agent = "cbt-session-manager";
  if (options.lease_namespace.empty()) options.lease_namespace = cluster->name_space;
  options.cluster = *std::move(cluster);
  const absl::StatusOr<std::unique_ptr<Manager>> started = Manager::Start(std::move(options));
  if (!started.ok()) return started.status();
  Manager& manager = **started;
  RunUntilStopped(serving, "session-manager", "the webhook of sessions", manager.address(),
                  [&manager](std::chrono::milliseconds grace) { manager.Shutdown(grace); },
                  {.ready = [&manager] { return manager.ready(); }});
  return absl::OkStatus();
}

}  // namespace

void AddSessionManager(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "session-manager", "Open sessions of the proposal's first revision in a Kubernetes cluster");
  const auto arguments = std::make_shared<SessionManagerArguments>();
  kube::sessions::Options& manager = arguments->manager;
  sub->add_option("--listen", manager.webhook.listen,
                  "Where the webhook listens; an empty host: every address")
      ->type_name("HOST:PORT")
      ->required();
  sub->add_option("--tls-cert", manager.webhook.certificate_file,
                  "Certificate chain of the webhook (PEM); read again when it changes")
      ->type_name("FILE")
      ->required();
  sub->add_option("--tls-key", manager.webhook.private_key_file, "Its private key (PEM)")
      ->type_name("FILE")
      ->required();
  AddDuration(*sub, "--session-time", arguments->session_time,
              "How long a session is open: 1h, 90m, or seconds", "1h");
  AddDuration(*sub, "--scan-time", manager.scan_time,
              "How often to look for pending requests and expired sessions", "10s");
  sub->add_option(
         "--kubeconfig", arguments->kubeconfig,
         "How to reach the API server; default: KUBECONFIG, ~/.kube/config, or as in a Pod")
      ->type_name("FILE");
  sub->add_flag("--leader-elect", manager.leader_election,
                "Act only while this process holds the Lease cbt-session-manager");
  sub->add_option("--lease-namespace", manager.lease_namespace,
                  "Namespace of the Lease; default: that of the Pod or of the kubeconfig")
      ->type_name("NAME");
  sub->add_option("--identity", manager.identity,
                  "Name of this process in the Lease; default: the host's name")
      ->type_name("NAME");
  sub->add_option("--http-endpoint", manager.http_endpoint,
                  "Address of /metrics, /healthz, /livez and /readyz; default: none")
      ->type_name("HOST:PORT");
  AddLogOptions(*sub, arguments->serving,
                "Log to stderr or --log-file: debug, info (the default), warning or error");
  AddLifeOptions(*sub, arguments->serving,
                 "Time for reviews under way to be answered after SIGTERM or SIGINT");
  sub->footer(
      "Example: in a Pod\n"
      "  cbt session-manager --listen :8443 --tls-cert /certs/tls.crt --tls-key /certs/tls.key "
      "--session-time 1h --leader-elect");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("session-manager", RunManager(*arguments)); };
  });
}

}  // namespace cbt::cli

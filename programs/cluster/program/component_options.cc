#include "programs/cluster/program/component_options.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cbt/ops/log.h"
#include "programs/cbt/options/go_flags.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {

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

void AddComponentOptions(CLI::App& sub, ComponentArguments& arguments,
                         const ComponentTexts& texts) {
  sub.add_option("--listen", arguments.server.listen,
                 absl::StrCat("Where ", texts.listener, " listens; an empty host: every address"))
      ->type_name("HOST:PORT")
      ->required();
  sub.add_option("--tls-cert", arguments.server.certificate_file,
                 absl::StrCat("Certificate chain of ", texts.listener,
                              " (PEM); read again when it changes"))
      ->type_name("FILE")
      ->required();
  sub.add_option("--tls-key", arguments.server.private_key_file, "Its private key (PEM)")
      ->type_name("FILE")
      ->required();
  AddProcessOptions(sub, arguments, texts);
}

void AddProcessOptions(CLI::App& sub, ComponentArguments& arguments, const ComponentTexts& texts) {
  sub.add_flag("--leader-elect", arguments.options.leader_election, texts.leader);
  sub.add_option("--lease-namespace", arguments.options.lease_namespace,
                 "Namespace of the Lease; default: that of the Pod or of the kubeconfig")
      ->type_name("NAME");
  sub.add_option("--identity", arguments.options.identity,
                 "Name of this process in the Lease; default: the host's name")
      ->type_name("NAME");
  AddSingleOptions(sub, arguments, texts.drain);
}

void AddSingleOptions(CLI::App& sub, ComponentArguments& arguments, const char* drain) {
  sub.add_option("--kubeconfig", arguments.kubeconfig,
                 "How to reach the API server; default: KUBECONFIG, ~/.kube/config, or as in a Pod")
      ->type_name("FILE");
  AddPageOptions(sub, arguments.options.http_endpoint, arguments.options.page_access);
  AddLogOptions(sub, arguments.serving,
                "Log to stderr or --log-file: debug, info (the default), warning or error");
  AddLifeOptions(sub, arguments.serving, drain);
}

absl::StatusOr<ComponentParts> PrepareComponent(ComponentArguments& arguments) {
  const ServingArguments& serving = arguments.serving;
  if (absl::Status ready = CheckReadyDescriptor(serving); !ready.ok()) return ready;
  PrepareProcess();
  ComponentParts parts;
  absl::StatusOr<std::unique_ptr<rpc::LogSink>> log = ops::MakeLog(
      {.level = serving.log_level.value_or(rpc::LogLevel::kInfo), .file = serving.log_file});
  if (!log.ok()) {
    return absl::Status(log.status().code(), "--log-file: " + MessageOf(log.status()));
  }
  absl::StatusOr<kube::Config> cluster = kube::LoadDefaultConfig(arguments.kubeconfig);
  if (!cluster.ok()) {
    return absl::Status(cluster.status().code(), "kubeconfig: " + MessageOf(cluster.status()));
  }
  parts.log = *std::move(log);
  parts.cluster = *std::move(cluster);
  kube::cluster::ComponentOptions& component = arguments.options;
  if (component.lease_namespace.empty()) component.lease_namespace = parts.cluster.name_space;
  component.log = parts.log.get();
  return parts;
}

}  // namespace cbt::cli

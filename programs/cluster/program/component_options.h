// Options of the components in a Kubernetes cluster.
#ifndef CBT_PROGRAMS_CLUSTER_PROGRAM_COMPONENT_OPTIONS_H_
#define CBT_PROGRAMS_CLUSTER_PROGRAM_COMPONENT_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/kube/config.h"
#include "cbt/rpc/telemetry.h"
#include "programs/cbt/options/serving.h"
#include "programs/cluster/component.h"
#include "programs/revisions/http_server/server_options.h"

namespace cbt::cli {

struct ComponentArguments {
  kube::cluster::ComponentOptions options = {};  // no namespace: that of the configuration
  kube::http_server::ServerOptions server = {};
  std::string kubeconfig = {};
  ServingArguments serving = {};  // those that concern the process
};

// How the options of a component read.
struct ComponentTexts {
  const char* listener;  // what listens: "the webhook"; null: nothing
  const char* leader;    // the help of --leader-elect
  const char* drain;     // the help of --grace
};

// --kubeconfig, --http-endpoint, those of logs and of the process's life. `drain`: the help of
// --grace. `arguments` must outlive the parsing.
void AddSingleOptions(CLI::App& sub, ComponentArguments& arguments, const char* drain);

// --leader-elect, --lease-namespace and --identity, and the same.
void AddProcessOptions(CLI::App& sub, ComponentArguments& arguments, const ComponentTexts& texts);

// --listen, --tls-cert and --tls-key, and the same.
void AddComponentOptions(CLI::App& sub, ComponentArguments& arguments, const ComponentTexts& texts);

// A time as Go and Kubernetes write it (1h30m), or in seconds as other commands take it; `shown`:
// the default in the help text.
void AddDuration(CLI::App& sub, const char* option, std::chrono::milliseconds& time,
                 const char* what, const char* shown);

// What every component needs before it starts. Call before any thread starts.
struct ComponentParts {
  std::unique_ptr<rpc::LogSink> log;
  kube::Config cluster;
};
// Errors name the option.
absl::StatusOr<ComponentParts> PrepareComponent(ComponentArguments& arguments);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CLUSTER_PROGRAM_COMPONENT_OPTIONS_H_

// `cbt-cluster cosi-node`: credentials of buckets as inline volumes of Pods.

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "programs/cbt/support/status.h"
#include "programs/cluster/program/commands.h"
#include "programs/cluster/program/component_options.h"
#include "programs/cosi/node/node.h"

namespace cbt::cli {
namespace {

struct CosiNodeArguments {
  ComponentArguments component = {};
  std::string socket = "unix:/csi/csi.sock";
  std::string node_id = {};
  std::string state_directory = "/var/lib/cbt-cosi";
};

absl::Status RunNode(CosiNodeArguments& arguments) {
  using kube::cosi::Node;
  ComponentArguments& component = arguments.component;
  absl::StatusOr<ComponentParts> parts = PrepareComponent(component);
  if (!parts.ok()) return parts.status();
  kube::cosi::NodeOptions options;
  options.cluster = std::move(parts->cluster);
  options.socket = arguments.socket;
  options.node_id = arguments.node_id;
  options.state_directory = arguments.state_directory;
  options.component = component.options;
  options.client.user_agent = "cbt-cosi-node";
  const absl::StatusOr<std::unique_ptr<Node>> started = Node::Start(std::move(options));
  if (!started.ok()) return started.status();
  Node& node = **started;
  RunUntilStopped(component.serving, "cosi-node", "credentials of buckets", node.address(),
                  [&node](std::chrono::milliseconds grace) { node.Shutdown(grace); });
  return absl::OkStatus();
}

}  // namespace

void AddCosiNode(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand("cosi-node",
                                           "Mount credentials of buckets in Pods: a CSI driver for "
                                           "inline volumes, on each node");
  const auto arguments = std::make_shared<CosiNodeArguments>();
  sub->add_option("--listen", arguments->socket, "Socket for kubelet")
      ->type_name("unix:PATH")
      ->capture_default_str();
  sub->add_option("--node-id", arguments->node_id, "Name of the node")
      ->type_name("NAME")
      ->required();
  sub->add_option("--state-dir", arguments->state_directory,
                  "Directory of notes on what is mounted; it outlives this process")
      ->type_name("DIR")
      ->capture_default_str();
  AddSingleOptions(*sub, arguments->component, "Time for calls under way after SIGTERM or SIGINT");
  sub->footer(
      "Example: in a Pod\n"
      "  cbt-cluster cosi-node --listen unix:/csi/csi.sock --node-id \"$NODE_NAME\"");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("cosi-node", RunNode(*arguments)); };
  });
}

}  // namespace cbt::cli

// Snippets that need cbt::rpc.
#include "cbt/rpc/client.h"
#include "cbt/rpc/relay.h"
#include "cbt/rpc/server.h"

absl::Status Serve(cbt::SnapshotProvider& provider, void (*wait_for_signal)()) {
  // [server]
  auto server = cbt::rpc::Server::Start(
      provider,
      {.listen = "unix:///csi/csi.sock", .service = {.plugin_name = "block.example.com"}});
  if (!server.ok()) return server.status();
  wait_for_signal();
  (*server)->Shutdown();
  // [/server]
  return absl::OkStatus();
}

absl::Status Relay() {
  // [relay]
  auto tokens = cbt::rpc::MakeTokenFileAccess("/etc/cbt/tokens");
  if (!tokens.ok()) return tokens.status();
  auto names = cbt::rpc::MakeDirectoryResolver();
  cbt::rpc::RelayOptions options;
  options.listen = "0.0.0.0:50051";
  options.plugin = "unix:///csi/csi.sock";
  options.service.access.authenticator = tokens->get();
  options.service.access.authorizer = tokens->get();
  options.service.access.resolver = names.get();
  auto relay = cbt::rpc::Relay::Start(options);
  // [/relay]
  return relay.status();
}

void AskASidecar(cbt::rpc::ListRequest& request, const std::string& token) {
  // [sidecar]
  request.api = cbt::rpc::Api::kKubernetes;
  request.name_space = "prod";
  request.token = cbt::Secret(token);
  request.snapshot_id = "tuesday";                // a name
  request.base_snapshot_id = "handle-of-monday";  // a handle
  // [/sidecar]
}

// The data path of a sidecar: accepts requests of one contract, authorises them, queries the
// storage's plugin over its socket in the CSI contract, and forwards the answer. Part of cbt::rpc.
//
// snippet: tests/consumer/snippets/rpc.cc#relay
//   auto tokens = cbt::rpc::MakeTokenFileAccess("/etc/cbt/tokens");
//   if (!tokens.ok()) return tokens.status();
//   auto names = cbt::rpc::MakeDirectoryResolver();
//   cbt::rpc::RelayOptions options;
//   options.listen = "0.0.0.0:50051";
//   options.plugin = "unix:///csi/csi.sock";
//   options.service.access.authenticator = tokens->get();
//   options.service.access.authorizer = tokens->get();
//   options.service.access.resolver = names.get();
//   auto relay = cbt::rpc::Relay::Start(options);
//
// Between contracts with the same layout, messages are forwarded as the slices they came in. The
// plugin's tuples are checked on the way (RelayOptions::check_tuples): a stream that breaks the
// rules ends with INTERNAL, which names the tuple, and nothing of the offending message is
// forwarded. A plugin that has nothing to report may end with OK without a message: from offset 0
// on, the relay then sends one with the target's capacity, if the resolver knows it. If the plugin
// ignores the starting offset or max_results, the relay applies them.
//
// The plugin's errors keep their code but get a text of the relay's with an error id; the log has
// the plugin's text under that id (ServiceOptions::telemetry), unless it resembles a secret of the
// request. An unreachable plugin is UNAVAILABLE. When the client disconnects, the plugin's stream
// is cancelled; while the client does not read, the relay does not read from the plugin.
#ifndef CBT_RPC_RELAY_H_
#define CBT_RPC_RELAY_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/rpc/options.h"
#include "cbt/rpc/service_options.h"

namespace cbt::rpc {

struct RelayOptions {
  // `unix:///path`, or `host:port` (port 0: any free one).
  std::string listen = {};
  // Secrets in requests of Api::kCsi and Api::kPaged are forwarded unchanged. total_time limits
  // each stream.
  ServiceOptions service = {};

  // The plugin, which speaks csi.v1.SnapshotMetadata: `unix:///path` or `host:port`.
  std::string plugin = {};
  ClientTlsOptions plugin_tls = {};

  // Check every tuple. If false, messages that need no change are forwarded without being decoded.
  bool check_tuples = true;
  // True: a plugin that ends with OK without a message has broken the contract (INTERNAL). False:
  // it has nothing to report.
  bool require_message = false;

  // If the plugin sends nothing for this long although the client can take more, the stream ends
  // with DEADLINE_EXCEEDED; zero: no limit. The contract has no heartbeat: a plugin that searches a
  // large volume without changes is silent, too.
  std::chrono::milliseconds plugin_stall_timeout = std::chrono::minutes(30);

  TlsOptions tls = {};
  ConnectionOptions connection = {};
  // What grpc.health.v1 answers at first; see Relay::SetServing().
  bool serving = true;
};

// A running relay.
class Relay {
 public:
  // Errors: as Server::Start(). The plugin need not be running yet.
  static absl::StatusOr<std::unique_ptr<Relay>> Start(const RelayOptions& options);

  // Calls Shutdown() without grace unless it was called before.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // As in Server.
  int port() const noexcept;
  const std::string& address() const noexcept;
  void Shutdown(std::chrono::milliseconds grace = std::chrono::seconds(5));
  size_t open_streams() const noexcept;

  // Sets what grpc.health.v1 answers: SERVING or NOT_SERVING. Streams are accepted either way. No
  // effect after Shutdown(). Safe to call from any thread.
  void SetServing(bool serving);

 private:
  class Impl;
  explicit Relay(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_RELAY_H_

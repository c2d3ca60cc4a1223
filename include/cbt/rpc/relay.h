// The data path of a sidecar: takes requests of one contract, lets those in who may, asks the
// storage's plugin over its socket in the CSI contract, and streams the answer on. Part of
// cbt::rpc.
//
//   auto tokens = cbt::rpc::MakeTokenFileAccess("/etc/cbt/tokens");
//   auto names = cbt::rpc::MakeFolderResolver();
//   auto relay = cbt::rpc::Relay::Start({.listen = "0.0.0.0:50051",
//                                        .plugin = "unix:///csi/csi.sock",
//                                        .access = {.authenticator = tokens->get(),
//                                                   .authorizer = tokens->get(),
//                                                   .resolver = names.get()}});
//
// Messages of contracts with the same layout are forwarded as the slices they came in. What a
// plugin sends is checked on the way (RelayOptions::check_tuples): a stream that breaks the rules
// ends with INTERNAL that names the tuple, and nothing of the offending message is passed on. A
// plugin that ignores the starting offset or max_results is put right.
//
// Errors of the plugin pass with their code and a text of ours, which names an error id; the log
// has the plugin's text under it (RelayOptions::telemetry), unless that resembles a secret of the
// request. A plugin that can't be reached is UNAVAILABLE. When the client goes, the plugin's stream
// is cancelled; when it stops reading, the plugin is no longer read.
#ifndef CBT_RPC_RELAY_H_
#define CBT_RPC_RELAY_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/rpc/access.h"
#include "cbt/rpc/api.h"
#include "cbt/rpc/options.h"
#include "cbt/rpc/session_store.h"
#include "cbt/rpc/telemetry.h"

namespace cbt::rpc {

struct RelayOptions {
  // `unix:///path`, or `host:port` (port 0: any free one).
  std::string listen = {};
  // The contracts that are served, each at most once; see ServerOptions for what they need. The
  // secrets of requests of Api::kCsi and Api::kPaged are passed on as they are.
  std::vector<Api> apis = {Api::kKubernetes};

  // The plugin, which speaks csi.v1.SnapshotMetadata: `unix:///path` or `host:port`.
  std::string plugin = {};
  ClientTlsOptions plugin_tls = {};

  // Check every tuple on its way. Without it messages that need no change are not even looked at.
  bool check_tuples = true;

  // A stream whose plugin sends nothing for this long, while its client would take something, is
  // ended with DEADLINE_EXCEEDED; zero: never. The contract has no sign of life: a plugin that
  // searches a large volume without changes is silent, too.
  std::chrono::milliseconds plugin_stall_timeout = std::chrono::minutes(30);

  // As in ServerOptions.
  AccessControl access = {};
  bool base_is_handle = true;
  SessionStore* sessions = nullptr;
  std::string page_token_key = {};
  TlsOptions tls = {};
  // Of the shape nothing counts. total_time is the longest that a stream may take.
  StreamOptions stream = {};
  ConnectionOptions connection = {};
  bool reflection = true;
  Telemetry telemetry = {};
};

// A running relay.
class Relay {
 public:
  // Errors: as Server::Start(). The plugin need not be there yet.
  static absl::StatusOr<std::unique_ptr<Relay>> Start(const RelayOptions& options);

  // Shutdown() with no grace if it was not called before.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // As those of Server.
  int port() const noexcept;
  const std::string& address() const noexcept;
  void Shutdown(std::chrono::milliseconds grace = std::chrono::seconds(5));
  size_t open_streams() const noexcept;

 private:
  class Impl;
  explicit Relay(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_RELAY_H_

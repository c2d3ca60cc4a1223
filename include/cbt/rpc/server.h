// A gRPC server for the contracts of cbt/rpc/api.h, and csi.v1.Identity, over a SnapshotProvider.
// Part of cbt::rpc.
//
// snippet: tests/consumer/snippets/rpc.cc#server
//   auto server = cbt::rpc::Server::Start(
//       provider, {.listen = "unix:///csi/csi.sock", .plugin_name = "block.example.com"});
//   if (!server.ok()) return server.status();
//   wait_for_signal();
//   (*server)->Shutdown();
//
// The library speaks gRPC's protocol itself: it links no gRPC library and contains no generated
// classes, so a plugin can link its own. grpc.health.v1 is served too. For a gRPC server that the
// plugin already has, see cbt/grpc/service.h.
#ifndef CBT_RPC_SERVER_H_
#define CBT_RPC_SERVER_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/provider.h"
#include "cbt/rpc/access.h"
#include "cbt/rpc/api.h"
#include "cbt/rpc/options.h"
#include "cbt/rpc/session_store.h"
#include "cbt/rpc/telemetry.h"

namespace cbt::rpc {

struct ServerOptions {
  // `unix:///path`, or `host:port` (port 0: any free one, see Server::port()).
  std::string listen = {};

  // The contracts to serve, each at most once.
  std::vector<Api> apis = {Api::kCsi};

  // csi.v1.Identity, of plugins: the name (a domain name of at most 63 characters) and version.
  bool identity = true;
  std::string plugin_name = "libcbt.example.com";
  std::string vendor_version = {};  // the library's version if empty

  // For Api::kKubernetes, which needs the first three; and for Api::kSession, which uses the last
  // two if they are set.
  AccessControl access = {};
  // What field 3 of the Kubernetes delta request holds: the handle of the base snapshot, as in the
  // deployed API, or its name, as in an earlier draft.
  bool base_is_handle = true;
  // For Api::kSession.
  SessionStore* sessions = nullptr;
  // For Api::kPaged: the key that seals page tokens. Servers that accept each other's tokens, or
  // their own after a restart, need the same key. If empty, it is derived from the plugin's name:
  // this detects mistakes, not forgery.
  std::string page_token_key = {};

  TlsOptions tls = {};
  StreamOptions stream = {};
  ConnectionOptions connection = {};

  // Serve grpc.reflection.v1 and v1alpha, which describe the services to clients.
  bool reflection = true;

  Telemetry telemetry = {};
};

// A running server.
class Server {
 public:
  // Starts to serve `provider`, which must outlive the server.
  //
  // A Unix socket is created with mode 0660. A stale socket file is replaced; a socket with a
  // listener is refused, and so is a path that is not a socket. The server holds a lock on
  // `<path>.lock` while it runs, so that of two servers that start at the same time only one
  // succeeds. Errors: INVALID_ARGUMENT for options out of range, FAILED_PRECONDITION if the address
  // is in use, UNAVAILABLE if listening fails, RESOURCE_EXHAUSTED if the system is out of memory or
  // threads.
  static absl::StatusOr<std::unique_ptr<Server>> Start(SnapshotProvider& provider,
                                                       const ServerOptions& options);

  // Calls Shutdown() without grace unless it was called before.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The TCP port in use; 0 for a Unix socket.
  int port() const noexcept;

  // The address in the form that clients accept.
  const std::string& address() const noexcept;

  // Drains: new streams are refused with UNAVAILABLE at once; open ones continue for up to `grace`
  // and then end with UNAVAILABLE. Returns when no stream is open, at the latest a few seconds
  // after the grace. Safe to call from any thread, and more than once.
  void Shutdown(std::chrono::milliseconds grace = std::chrono::seconds(5));

  // Number of open streams.
  size_t open_streams() const noexcept;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_H_

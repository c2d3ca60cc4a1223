// A gRPC server for the contracts of cbt/rpc/api.h, and csi.v1.Identity, over a SnapshotProvider.
// Part of cbt::rpc.
//
//   MyProvider provider;
//   auto server = cbt::rpc::Server::Start(provider, {.listen = "unix:///csi/csi.sock",
//                                                    .plugin_name = "block.example.com"});
//   if (!server.ok()) return Fail(server.status());
//   WaitForSignal();
//   (*server)->Shutdown();
//
// The library registers its methods by name with gRPC's raw callback interface and brings no
// generated classes, so a plugin can link its own generated CSI code beside it.
// grpc.health.v1 is served beside them.
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

  // The contracts that are served, each at most once.
  std::vector<Api> apis = {Api::kCsi};

  // csi.v1.Identity: the plugin's name (a domain name of at most 63 characters) and version.
  std::string plugin_name = "libcbt.example.com";
  std::string vendor_version = {};  // the library's version if empty

  // For Api::kKubernetes, which needs the first three; for Api::kSession, which asks the last two
  // if they are there.
  AccessControl access = {};
  // What field 3 of the Kubernetes delta request holds: the handle of the base snapshot, as the API
  // is deployed, or its name, as an earlier text had it.
  bool base_is_handle = true;
  // For Api::kSession.
  SessionStore* sessions = nullptr;
  // For Api::kPaged: what page tokens are sealed with. Servers that are to take each other's
  // tokens, and one that is to take its own after a restart, have the same. If empty it is derived
  // from the plugin's name: that finds mistakes, and nobody who wants to cheat.
  std::string page_token_key = {};

  TlsOptions tls = {};
  StreamOptions stream = {};
  ConnectionOptions connection = {};

  // Tell clients what the services look like (grpc.reflection.v1 and v1alpha).
  bool reflection = true;

  Telemetry telemetry = {};
};

// A running server.
class Server {
 public:
  // Starts to serve `provider`, which must outlive the server.
  //
  // A Unix socket is created with mode 0660. A socket file that nobody listens on is replaced, one
  // that somebody listens on is refused, and so is a path that is no socket. `<path>.lock` holds a
  // lock as long as the server runs, so that two servers that start at the same time can't both
  // win. Errors: INVALID_ARGUMENT for options out of range, FAILED_PRECONDITION when the address is
  // in use, UNAVAILABLE when listening fails, RESOURCE_EXHAUSTED when the system has no more memory
  // or threads.
  static absl::StatusOr<std::unique_ptr<Server>> Start(SnapshotProvider& provider,
                                                       const ServerOptions& options);

  // Shutdown() with no grace if it was not called before.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The TCP port in use; 0 for a Unix socket.
  int port() const noexcept;

  // The address in the form clients take.
  const std::string& address() const noexcept;

  // Drains: new streams are refused with UNAVAILABLE at once, open ones go on for up to `grace` and
  // are then ended with UNAVAILABLE. Returns when no stream is open any more, at the latest a few
  // seconds after the grace. Safe to call from any thread, more than once.
  void Shutdown(std::chrono::milliseconds grace = std::chrono::seconds(5));

  // Streams that are open now.
  size_t open_streams() const noexcept;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_H_

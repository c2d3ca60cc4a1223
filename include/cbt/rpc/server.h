// A gRPC server for the contracts (Api), and csi.v1.Identity, over a SnapshotProvider. Part of
// cbt::rpc.
//
// snippet: tests/consumer/snippets/rpc.cc#server
//   auto server = cbt::rpc::Server::Start(
//       provider,
//       {.listen = "unix:///csi/csi.sock", .service = {.plugin_name = "block.example.com"}});
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

#include "absl/status/statusor.h"
#include "cbt/provider.h"
#include "cbt/rpc/options.h"
#include "cbt/rpc/service_options.h"

namespace cbt::rpc {

struct ServerOptions {
  // `unix:///path`, or `host:port` (port 0: any free one, see Server::port()).
  std::string listen = {};

  ServiceOptions service = {};

  TlsOptions tls = {};
  ConnectionOptions connection = {};
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

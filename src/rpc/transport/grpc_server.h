// A gRPC server that serves services on one address.
#ifndef CBT_RPC_TRANSPORT_GRPC_SERVER_H_
#define CBT_RPC_TRANSPORT_GRPC_SERVER_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/rpc/options.h"
#include "cbt/rpc/telemetry.h"
#include "rpc/transport/client_ca.h"
#include "rpc/transport/connection_watch.h"
#include "rpc/transport/listen_address.h"
#include "rpc/transport/server_call.h"
#include "rpc/transport/socket_file.h"

namespace grpc {
class Server;
}

namespace cbt::rpc {

class GrpcService;

class GrpcServer {
 public:
  struct Options {
    TlsOptions tls = {};
    ConnectionOptions connection = {};
    size_t max_streams = 0;  // of all clients together; the services refuse those above
    // How long a client may read nothing.
    std::chrono::milliseconds stall_timeout{0};
    Telemetry telemetry = {};
    // Callbacks from a thread of the server, about once a second. Must not throw.
    std::function<bool()> overdue = {};                  // whether some calls should have ended
    std::function<void(size_t connections)> state = {};  // current number of connections
  };

  // Listens and serves `services`, which must live until Shutdown() has returned.
  // Errors: INVALID_ARGUMENT for unusable TLS options, UNAVAILABLE if the address is in use, errors
  //         of reading a file and of the socket.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const Address& address,
                                                           const Options& options,
                                                           const std::vector<Service*>& services);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // With the port that was chosen if none was given.
  const Address& address() const noexcept { return address_; }

  // Cancels the open calls after a fraction of a second and closes the connections. Takes about a
  // second at most. Also done by the destructor.
  void Shutdown();

 private:
  GrpcServer();
  absl::Status Listen(const Address& address, const Options& options,
                      const std::vector<Service*>& services);
  static ConnectionWatch::Owner WatchOwner(const Options& options,
                                           std::shared_ptr<ClientCa> client_ca);

  Address address_;
  std::unique_ptr<SocketFile> socket_file_;
  std::vector<std::unique_ptr<GrpcService>> services_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ConnectionWatch> watch_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_GRPC_SERVER_H_

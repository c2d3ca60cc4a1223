// The parts common to all servers: address, TLS, limits, health, reflection, and orderly shutdown.
#ifndef CBT_RPC_SERVER_SERVICE_HOST_H_
#define CBT_RPC_SERVER_SERVICE_HOST_H_

#include <grpcpp/server.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cbt/rpc/server.h"
#include "cbt/rpc/telemetry.h"
#include "rpc/outbound/open_streams.h"
#include "rpc/server/health_service.h"
#include "rpc/server/small_calls.h"
#include "rpc/transport/client_ca.h"
#include "rpc/transport/connection_watch.h"
#include "rpc/transport/listen_address.h"
#include "rpc/transport/raw_service.h"
#include "rpc/transport/socket_file.h"

namespace cbt::rpc {

// INVALID_ARGUMENT that names the option that is out of range.
absl::Status CheckStreamOptions(const StreamOptions& stream);
absl::Status CheckConnectionOptions(const ConnectionOptions& connection);

class ServiceHost {
 public:
  ServiceHost(const StreamOptions& options, const Telemetry& telemetry);
  ~ServiceHost() = default;
  ServiceHost(const ServiceHost&) = delete;
  ServiceHost& operator=(const ServiceHost&) = delete;

  OpenStreams& registry() noexcept { return registry_; }
  SmallCalls& small_calls() noexcept { return small_calls_; }

  // Listens and serves `services`, which must live until Shutdown() has returned. Call once.
  absl::Status Listen(const std::string& address, const TlsOptions& tls,
                      const ConnectionOptions& connection, size_t max_streams,
                      const std::vector<grpc::Service*>& services);

  int port() const noexcept { return address_.port; }
  const std::string& address() const noexcept { return text_; }

  // See Server::Shutdown().
  void Shutdown(std::chrono::milliseconds grace);

 private:
  ConnectionWatch::Owner WatchOwner(std::shared_ptr<ClientCa> client_ca);

  const Telemetry telemetry_;
  const std::chrono::milliseconds stall_timeout_;
  OpenStreams registry_;
  SmallCalls small_calls_;
  HealthService health_;
  Address address_;
  std::string text_;
  std::unique_ptr<SocketFile> socket_file_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<ConnectionWatch> watch_;
  std::mutex shutdown_mutex_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_SERVICE_HOST_H_

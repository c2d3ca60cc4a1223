// The parts common to all servers: address, TLS, limits, health, reflection, and orderly shutdown.
#ifndef CBT_RPC_SERVER_SERVICE_HOST_H_
#define CBT_RPC_SERVER_SERVICE_HOST_H_

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "cbt/rpc/options.h"
#include "cbt/rpc/service_options.h"
#include "cbt/rpc/telemetry.h"
#include "net/loop_threads.h"
#include "net/tls_context.h"
#include "rpc/contract/server_event.h"
#include "rpc/http2/server.h"
#include "rpc/server/health_service.h"
#include "rpc/server/identity_and_health_calls.h"
#include "rpc/server/stream_registry.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc {

// INVALID_ARGUMENT that names the option that is out of range.
absl::Status CheckStreamOptions(const StreamOptions& stream);
absl::Status CheckConnectionOptions(const ConnectionOptions& connection);

class ServiceHost {
 public:
  // `options` are those of the services.
  explicit ServiceHost(const ServiceOptions& options);
  ~ServiceHost() { Shutdown(std::chrono::milliseconds{0}); }
  ServiceHost(const ServiceHost&) = delete;
  ServiceHost& operator=(const ServiceHost&) = delete;

  StreamRegistry& registry() noexcept { return registry_; }
  IdentityAndHealthCalls& small_calls() noexcept { return small_calls_; }
  // `options` with a limited log.
  ServiceOptions Limited(ServiceOptions options) const;

  // Listens and serves `services`, which must live until Shutdown() has returned. `loops`: see
  // http2::Server. Call once. Errors: INVALID_ARGUMENT for an address or TLS options that can't be
  // used, FAILED_PRECONDITION if the address is in use, UNAVAILABLE if listening fails, errors of
  // reading a file. Throws std::system_error if no thread can be started.
  absl::Status Listen(const std::string& address, const TlsOptions& tls,
                      const ConnectionOptions& connection, const std::vector<Service*>& services,
                      net::LoopThreads* loops = nullptr);

  int port() const noexcept { return port_; }
  const std::string& address() const noexcept { return text_; }

  // See Relay::SetServing().
  void SetServing(bool serving) { health_.SetServing(serving); }

  // See Server::Shutdown().
  void Shutdown(std::chrono::milliseconds grace);

 private:
  void ReportState() const;
  void CheckClientCa();
  void CheckFiles();

  const LimitedTelemetry limited_;
  const Telemetry telemetry_;
  const StreamOptions stream_;
  StreamRegistry registry_;
  IdentityAndHealthCalls small_calls_;
  HealthService health_;
  int port_ = 0;
  std::string text_;
  std::unique_ptr<net::ServerTls> tls_;    // null without TLS
  std::unique_ptr<http2::Server> server_;  // null before Listen() and after Shutdown()
  std::mutex shutdown_mutex_;

  // Reports the state and looks at the client CA, about once a second.
  std::mutex look_mutex_;
  std::condition_variable closed_;
  bool closing_ = false;
  std::thread file_checker_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_SERVICE_HOST_H_

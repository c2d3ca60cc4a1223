// Where a server listens: the transport with its TLS and limits.
#ifndef CBT_RPC_SERVER_LISTENER_H_
#define CBT_RPC_SERVER_LISTENER_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/rpc/options.h"
#include "cbt/rpc/telemetry.h"
#include "net/listen_address.h"
#include "net/loop_threads.h"
#include "net/tls_context.h"
#include "rpc/http2/server.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc {

class Listener {
 public:
  struct Options {
    TlsOptions tls = {};
    ConnectionOptions connection = {};
    size_t max_streams = 0;  // of all clients together; the services refuse those above
    // How long a client may read nothing.
    std::chrono::milliseconds stall_timeout{0};
    Telemetry telemetry = {};
    // From a thread of the listener, about once a second, or more often if
    // stall_timeout is short. Must not throw.
    std::function<void(const http2::Server& server)> state = {};
  };

  // Listens and serves `services`, which must live until Shutdown() has returned. `loops`: see
  // http2::Server.
  // Errors: INVALID_ARGUMENT for unusable TLS options, FAILED_PRECONDITION if the address is in
  // use,
  //         UNAVAILABLE if listening fails, errors of reading a file. Throws std::system_error if
  //         no thread can be started.
  static absl::StatusOr<std::unique_ptr<Listener>> Start(const net::Address& address,
                                                         const Options& options,
                                                         const std::vector<Service*>& services,
                                                         net::LoopThreads* loops = nullptr);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // With the port that was chosen if none was given.
  const net::Address& address() const noexcept { return server_->address(); }

  // Cancels the open calls after a fraction of a second and closes the connections. Also done by
  // the destructor.
  void Shutdown();

 private:
  Listener(const Options& options, std::unique_ptr<net::ServerTls> tls);
  void Look();

  const std::function<void(const http2::Server& server)> state_;
  const Telemetry telemetry_;
  const std::chrono::milliseconds interval_;   // between two looks
  const std::unique_ptr<net::ServerTls> tls_;  // null without TLS
  std::unique_ptr<http2::Server> server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_LISTENER_H_

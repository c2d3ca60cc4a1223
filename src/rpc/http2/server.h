// A server of gRPC methods over HTTP/2.
#ifndef CBT_RPC_HTTP2_SERVER_H_
#define CBT_RPC_HTTP2_SERVER_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "cbt/rpc/telemetry.h"
#include "cbt/units.h"
#include "net/acceptor.h"
#include "net/address.h"
#include "net/loop_threads.h"
#include "net/memory.h"
#include "net/socket_file.h"
#include "net/socket_stream.h"
#include "rpc/http2/connection.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc::http2 {

struct ServerLimits {
  // Threads, unless they are given; at most one per processor.
  size_t loops = 2;
  // Concurrent connections. A further one replaces the one that has been without a served call for
  // longest; without such a one it is closed.
  size_t connections = 6'000;
  // Bytes that all connections may hold together: sessions, buffers, TLS, waiting messages. Beyond
  // that connections without a served call make room; see ServerPeers. If that does not suffice,
  // new calls get RESOURCE_EXHAUSTED, and the largest connections are closed. 0: no limit.
  size_t memory_bytes = 256 * kMiB;
  // Longer messages of clients get RESOURCE_EXHAUSTED.
  uint32_t request_bytes = 64 * kKiB;
  // Time limit for the arrival of a request's first message; then DEADLINE_EXCEEDED. 0: no limit.
  std::chrono::milliseconds request_time = std::chrono::seconds(10);
  // Header lists, windows, streams, times and rates of each connection; the server sets `role` and
  // `stream_window_bytes`.
  ConnectionSettings connection = {};
};

// Called for each new connection: its TLS end, or why it is refused. Called from the server's
// threads; must not block or throw. Empty: no TLS.
using NewServerSsl = std::function<absl::StatusOr<net::OwnedSsl>()>;

// State shared by the workers; all of it is thread safe or constant.
struct ServerShared {
  ServerLimits limits;
  NewServerSsl ssl;
  Telemetry telemetry;
  std::map<std::string, const Service::Method*, std::less<>> methods;
  std::shared_ptr<net::MemoryAccount> memory = std::make_shared<net::MemoryAccount>();
  std::atomic<size_t> leaving{0};  // bytes of connections that were chosen to end
  size_t workers = 1;
  std::atomic<size_t> connections{0};
  std::atomic<size_t> waiting{0};  // calls whose request has not arrived
  std::atomic<uint64_t> accepted{0};
  Traffic traffic;
};

class ServerWorker;

// Serves from Start() on. Thread safe.
class Server {
 public:
  // `services` outlive the server and have distinct paths. `loops`, if not null, outlive it too;
  // the server starts their threads. Errors: INVALID_ARGUMENT and FAILED_PRECONDITION as for
  // net::SocketFile and net::ProbeTcpAddress(), UNAVAILABLE if the system refuses,
  // RESOURCE_EXHAUSTED without memory.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const net::Address& address,
                                                       const ServerLimits& limits,
                                                       const std::vector<Service*>& services,
                                                       NewServerSsl ssl, const Telemetry& telemetry,
                                                       net::LoopThreads* loops = nullptr);

  // Shutdown() without grace.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // With the actual port.
  const net::Address& address() const noexcept;

  size_t connections() const noexcept;
  // Bytes; see ServerLimits::memory_bytes.
  size_t memory() const noexcept;

  // Calls whose request has not fully arrived.
  size_t waiting() const noexcept;

  // Connections accepted since the start, without refused ones.
  uint64_t accepted() const noexcept;
  const Traffic& traffic() const noexcept;

  // Closes every connection at once, for example because their certificates are no longer trusted.
  void CloseConnections() noexcept;

  // Accepts nothing more, waits for open calls, cancels those still open after `grace`, and closes
  // the connections. Returns once every handler has had its OnDone(). A concurrent call may shorten
  // the grace. Not from the server's threads, which go on if they were given.
  void Shutdown(std::chrono::milliseconds grace) noexcept;

 private:
  Server(const net::Address& address, const ServerLimits& limits, NewServerSsl ssl,
         const Telemetry& telemetry, net::LoopThreads* loops);

  absl::Status Prepare(const std::vector<Service*>& services);
  absl::Status Listen();
  // Run in the first worker's loop.
  void Take(OwnedDescriptor connection) noexcept;
  void StopListening() noexcept;

  // Destroyed from the bottom up: the services outlive the loops.
  net::Address address_;
  ServerShared shared_;
  std::unique_ptr<net::SocketFile> socket_file_;
  std::unique_ptr<net::LoopThreads> own_loops_;
  net::LoopThreads* loops_;
  std::vector<std::unique_ptr<ServerWorker>> workers_;  // one per loop
  std::vector<std::unique_ptr<net::Acceptor>> acceptors_;
  size_t next_worker_ = 0;
  net::MemberTask<Server, &Server::StopListening> stop_listening_{*this};
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool listening_ = false;
  bool stopping_ = false;
  std::mutex shutdown_mutex_;
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_SERVER_H_

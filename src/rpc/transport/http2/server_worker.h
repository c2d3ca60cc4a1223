// A server's part in one loop: its connections and their calls.
#ifndef CBT_RPC_TRANSPORT_HTTP2_SERVER_WORKER_H_
#define CBT_RPC_TRANSPORT_HTTP2_SERVER_WORKER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "rpc/transport/http2/connection.h"
#include "rpc/transport/http2/event_loop.h"
#include "rpc/transport/http2/memory.h"
#include "rpc/transport/http2/server.h"

namespace cbt::rpc::http2 {

class CallImpl;

// State shared by the workers; all of it is thread safe or constant.
struct ServerShared {
  ServerLimits limits;
  NewServerSsl ssl;
  Telemetry telemetry;
  std::map<std::string, const Service::Method*, std::less<>> methods;
  std::shared_ptr<MemoryAccount> memory = std::make_shared<MemoryAccount>();
  std::atomic<size_t> connections{0};
  std::atomic<uint64_t> accepted{0};
  Traffic traffic;

  bool OverMemory() const noexcept {
    return limits.memory_bytes > 0 && memory->used() > limits.memory_bytes;
  }
};

class ServerWorker final : private ConnectionListener {
 public:
  // No thread may run `loop` yet; `number` is what calls say of it.
  ServerWorker(ServerShared& shared, EventLoop& loop, size_t number);
  // No thread runs the loop, or Await() has returned.
  ~ServerWorker() override;
  ServerWorker(const ServerWorker&) = delete;
  ServerWorker& operator=(const ServerWorker&) = delete;

  // From any thread: adds a connection, counted in `connections`. Refuses it without memory.
  void Give(OwnedDescriptor connection) noexcept;
  void CloseConnections() noexcept;

  // From any thread: starts to drain; call again to shorten the grace period.
  void Drain(EventLoop::Clock::time_point deadline) noexcept;
  // Call after Drain(), while a thread runs the loop: waits for the end of the last call and
  // connection. Nothing in the loop refers to the worker after that.
  void Await() noexcept;

  EventLoop& loop() noexcept { return loop_; }
  size_t number() const noexcept { return number_; }
  ServerShared& shared() noexcept { return shared_; }
  // For calls.
  void Add(CallImpl& call) noexcept;
  void Remove(CallImpl& call) noexcept;

 private:
  Stream* OnRequest(Connection& connection, const HeaderBlock& headers) noexcept override;
  void OnClosed(Connection& connection, const absl::Status& reason) noexcept override;
  void Work() noexcept;
  void Accept(OwnedDescriptor descriptor);
  // Wakes the loop, unless the drain is over.
  template <typename Note>
  void Ask(const Note& note) noexcept;
  void CheckDrain() noexcept;
  void EndDrain() noexcept;
  void OnTime() noexcept;
  void EndLargest() noexcept;

  ServerShared& shared_;
  EventLoop& loop_;
  const size_t number_;
  ReadChunks chunks_;
  std::map<Connection*, std::unique_ptr<Connection>> connections_;
  CallImpl* first_call_ = nullptr;

  std::mutex mutex_;
  std::vector<OwnedDescriptor> given_;
  bool close_all_ = false;
  std::optional<EventLoop::Clock::time_point> drain_by_;
  bool drained_ = false;
  std::condition_variable changed_;

  bool draining_ = false;
  bool cancelled_ = false;
  MemberTask<ServerWorker, &ServerWorker::Work> work_{*this};
  MemberTask<ServerWorker, &ServerWorker::EndDrain> end_{*this};
  MemberTimer<ServerWorker, &ServerWorker::OnTime> timer_{*this};
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_TRANSPORT_HTTP2_SERVER_WORKER_H_

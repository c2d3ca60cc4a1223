// A server's part in one loop: its connections and their calls.
#ifndef CBT_RPC_HTTP2_SERVER_WORKER_H_
#define CBT_RPC_HTTP2_SERVER_WORKER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/descriptor.h"
#include "net/event_loop.h"
#include "net/memory.h"
#include "rpc/http2/connection.h"
#include "rpc/http2/server.h"
#include "rpc/http2/server_peers.h"

namespace cbt::rpc::http2 {

class CallImpl;

class ServerWorker final : private ConnectionListener {
 public:
  // No thread may run `loop` yet; `number` is what calls say of it.
  ServerWorker(ServerShared& shared, net::EventLoop& loop, size_t number);
  // No thread runs the loop, or Await() has returned.
  ~ServerWorker() override;
  ServerWorker(const ServerWorker&) = delete;
  ServerWorker& operator=(const ServerWorker&) = delete;

  // From any thread: adds a connection, counted in `connections`. `replaces`: another one that has
  // no served call ends for it. Refuses it without memory.
  void AddConnection(OwnedDescriptor connection, bool replaces = false) noexcept;
  // From any thread: how many connections could be replaced.
  size_t replaceable() const noexcept { return peers_.replaceable(); }
  void CloseConnections() noexcept;

  // From any thread: starts to drain; call again to shorten the grace period.
  void Drain(net::EventLoop::Clock::time_point deadline) noexcept;
  // Call after Drain(), while a thread runs the loop: waits for the end of the last call and
  // connection. Nothing in the loop refers to the worker after that.
  void Await() noexcept;

  net::EventLoop& loop() noexcept { return loop_; }
  size_t number() const noexcept { return number_; }
  ServerShared& shared() noexcept { return shared_; }

  // Whether all connections hold more than the quota, and those of this loop more than their share
  // of it, although connections other than `keep` were ended to make room. Connections without a
  // served call go, so that others need not be refused.
  bool OverMemory(const Connection* keep) noexcept;
  // For calls.
  void Add(CallImpl& call) noexcept;
  void Remove(CallImpl& call) noexcept;

 private:
  struct Given {
    OwnedDescriptor descriptor;
    bool replaces;
  };

  Stream* OnRequest(Connection& connection, const HeaderBlock& headers) noexcept override;
  void OnReady(Connection& connection) noexcept override;
  void OnServed(Connection& connection) noexcept override;
  bool MayRead() noexcept override;
  void OnHeld(Connection& connection) noexcept override { OverMemory(&connection); }
  void OnClosed(Connection& connection, const absl::Status& reason) noexcept override;
  void Work() noexcept;
  void Accept(OwnedDescriptor descriptor, bool replaces);
  void TakeLater(std::vector<Given> given, size_t first) noexcept;
  size_t Excess() noexcept;
  void NoteLeaving(size_t before) noexcept;
  // Wakes the loop, unless the drain is over.
  template <typename Note>
  void Ask(const Note& note) noexcept;
  void CheckDrain() noexcept;
  void EndDrain() noexcept;
  void OnTime() noexcept;

  ServerShared& shared_;
  net::EventLoop& loop_;
  const size_t number_;
  net::ReadChunks chunks_;
  ServerPeers peers_;
  net::EventLoop::Clock::time_point no_room_until_;
  CallImpl* first_call_ = nullptr;

  std::mutex mutex_;
  std::vector<Given> given_;
  bool close_all_ = false;
  std::optional<net::EventLoop::Clock::time_point> drain_by_;
  bool drained_ = false;
  std::condition_variable changed_;

  bool draining_ = false;
  bool cancelled_ = false;
  net::MemberTask<ServerWorker, &ServerWorker::Work> work_{*this};
  net::MemberTask<ServerWorker, &ServerWorker::EndDrain> end_{*this};
  net::MemberTimer<ServerWorker, &ServerWorker::OnTime> timer_{*this};
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_SERVER_WORKER_H_

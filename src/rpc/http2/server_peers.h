// The connections of a server's loop, and which of them end when there is no room for all.
#ifndef CBT_RPC_HTTP2_SERVER_PEERS_H_
#define CBT_RPC_HTTP2_SERVER_PEERS_H_

#include <atomic>
#include <cstddef>
#include <list>
#include <map>
#include <memory>

#include "net/event_loop.h"
#include "rpc/http2/connection.h"

namespace cbt::rpc::http2 {

// Belongs to the loop's thread, unless noted. Connections that were chosen to end may stay for some
// turns; they count as `leaving`.
class ServerPeers {
 public:
  using Clock = net::EventLoop::Clock;

  ServerPeers() = default;
  ServerPeers(const ServerPeers&) = delete;
  ServerPeers& operator=(const ServerPeers&) = delete;

  bool empty() const noexcept { return peers_.empty(); }

  // Throws std::bad_alloc.
  void Add(std::unique_ptr<Connection> connection, Clock::time_point now);
  // Destroys it.
  void Remove(Connection& connection) noexcept;

  // `connection` has become ready(), or serves() has changed.
  void Update(Connection& connection, Clock::time_point now) noexcept;

  template <typename Function>
  void ForEach(const Function& function) const noexcept {
    for (const auto& [connection, peer] : peers_) function(*connection);
  }

  // The number of connections that MakePlace() can choose from. From any thread.
  size_t replaceable() const noexcept { return replaceable_.load(std::memory_order_relaxed); }

  // Ends the connection that has been without a served call for longest; false without such a one.
  bool MakePlace() noexcept;

  // Ends connections without a served call that hold `bytes` together, or all; returns what they
  // hold. First those in their handshake, as far as they hold more than `handshakes` bytes
  // together, the oldest first; then the largest, and among those of similar size the ones that
  // have been without a call for longest. Those that have just come or ended a call follow the
  // others. `keep` stays. O(n log n) in the number of connections.
  size_t MakeRoom(size_t bytes, size_t handshakes, const Connection* keep,
                  Clock::time_point now) noexcept;

  // Ends the largest connection that holds at least `least` bytes; returns what it holds.
  size_t EndLargest(size_t least) noexcept;

  // Bytes of connections that were chosen to end.
  size_t leaving() const noexcept { return leaving_; }

 private:
  struct Peer;
  struct Candidate;
  using List = std::list<Peer>;
  struct Peer {
    std::unique_ptr<Connection> connection;
    List* list = nullptr;
    Clock::time_point since;  // the birth, or the end of the last served call
    size_t leaving = 0;
  };

  size_t End(Peer& peer) noexcept;
  void Leave(Peer& peer) noexcept;

  std::map<Connection*, List::iterator> peers_;
  // Each of the oldest `since` first.
  List handshakes_;
  List idle_;  // or with requests that have not arrived, or answers that are not read
  List served_;
  List gone_;  // chosen to end
  size_t leaving_ = 0;
  std::atomic<size_t> replaceable_{0};
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_SERVER_PEERS_H_

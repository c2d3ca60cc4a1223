// The connections of a server, which gRPC 1.51 keeps to itself: it has no way to end one whose peer
// no longer reads from its socket, waits for it with every call on it, and is never shut down then.
#ifndef CBT_RPC_TRANSPORT_CONNECTION_WATCH_H_
#define CBT_RPC_TRANSPORT_CONNECTION_WATCH_H_

#include <sys/types.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rpc/transport/listen_address.h"

namespace cbt::rpc {

// Finds the sockets of a listener's connections among the descriptors of the process, by the
// address that they are bound to. Not thread safe.
class ConnectionSockets {
 public:
  // `address` with the port that is in use.
  explicit ConnectionSockets(const Address& address);

  // Looks at all of them; returns how many there are. What their peers take is known from one look
  // to the next. Throws std::bad_alloc.
  size_t Look();

  // Closes those whose peers have taken nothing for at least `time`, though there is something for
  // them; returns how many. A look must have come before.
  size_t CloseStuck(std::chrono::milliseconds time);
  size_t CloseAll();

 private:
  using Clock = std::chrono::steady_clock;
  struct Progress {
    uint64_t taken = 0;  // a number that changes when the peer takes something
    Clock::time_point since;
    bool blocked = false;
    uint64_t look = 0;
  };

  bool IsOurs(int fd) const;
  template <typename Visit>
  void ForEach(const Visit& visit) const;
  size_t Close(const std::function<bool(ino_t)>& which);

  const Address address_;
  std::vector<std::array<uint8_t, 16>> hosts_;  // IPv4 as IPv6; empty: any
  std::map<ino_t, Progress> progress_;
  uint64_t look_ = 0;
};

// Looks at the connections about once a second, in a thread of its own.
class ConnectionWatch {
 public:
  // What the owner does at each look, from the watch's thread. Must not throw.
  struct Owner {
    std::function<bool()> overdue;                  // whether there are calls that gRPC doesn't end
    std::function<bool()> revoked;                  // whether all connections must go
    std::function<void(size_t connections)> state;  // how many there are
    std::function<void(size_t connections)> cut;    // that many were closed as stuck
  };

  // Where calls are overdue, connections are closed whose peers have taken nothing for half of
  // `stall`. Throws std::system_error when there is no thread.
  ConnectionWatch(const Address& address, std::chrono::milliseconds stall, Owner owner);
  ~ConnectionWatch();
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;

  // From then on every connection is closed that is still there.
  void CloseAllAfter(std::chrono::milliseconds time);

 private:
  using Clock = std::chrono::steady_clock;
  void Run();
  void Step(bool close_all);

  ConnectionSockets sockets_;
  const std::chrono::milliseconds stall_;
  const Owner owner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;
  std::optional<Clock::time_point> close_all_at_;
  std::thread thread_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_CONNECTION_WATCH_H_

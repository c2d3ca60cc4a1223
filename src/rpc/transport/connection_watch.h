// Watches a server's connections, which gRPC 1.51 does not expose. gRPC can't end a connection
// whose peer has stopped reading: its calls stay open, and the server never shuts down.
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

// Finds the sockets of a listener's connections among the descriptors of the process, by their
// local address. Not thread safe.
class ConnectionSockets {
 public:
  // `address` holds the actual port, not 0.
  explicit ConnectionSockets(const Address& address);

  // Examines all connections and returns their number. Progress of the peers is measured from one
  // call to the next. Throws std::bad_alloc.
  size_t Look();

  // Closes the connections whose peers have read nothing for at least `time` although data is
  // waiting; returns their number. Call Look() first.
  size_t CloseStuck(std::chrono::milliseconds time);
  size_t CloseAll();

 private:
  using Clock = std::chrono::steady_clock;
  struct Progress {
    uint64_t taken = 0;  // a number that changes when the peer reads
    Clock::time_point since;
    bool blocked = false;
    uint64_t look = 0;
  };

  bool IsOurs(int fd) const;
  template <typename Visit>
  void ForEach(const Visit& visit) const;
  size_t Close(const std::function<bool(ino_t)>& which);

  const Address address_;
  std::vector<std::array<uint8_t, 16>> hosts_;  // IPv4 mapped to IPv6; empty: any
  std::map<ino_t, Progress> progress_;
  uint64_t look_ = 0;
};

// Examines the connections about once a second, in its own thread.
class ConnectionWatch {
 public:
  // Callbacks at each look, from the watch's thread. Must not throw.
  struct Owner {
    std::function<bool()> overdue;                  // whether gRPC fails to end some calls
    std::function<bool()> revoked;                  // whether all connections must be closed
    std::function<void(size_t connections)> state;  // current number of connections
    std::function<void(size_t connections)> cut;    // number of connections closed as stuck
  };

  // While calls are overdue, closes connections whose peers have read nothing for half of `stall`.
  // Throws std::system_error if no thread can be started.
  ConnectionWatch(const Address& address, std::chrono::milliseconds stall, Owner owner);
  ~ConnectionWatch();
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;

  // Closes every connection that is still open after `time`.
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

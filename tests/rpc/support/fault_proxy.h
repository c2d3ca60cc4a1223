// A faulty wire between a client and a server: it breaks after any byte, in several ways, falls
// silent, and optionally alters bytes.
#ifndef CBT_TESTS_RPC_SUPPORT_FAULT_PROXY_H_
#define CBT_TESTS_RPC_SUPPORT_FAULT_PROXY_H_

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cbt::test {

// Happens once, after `after` bytes in one direction since the fault was armed. Only bytes of
// messages can be flipped, and only they count for it: gRPC 1.51 aborts the process on some altered
// bytes of its own frames.
struct WireFault {
  enum class Kind {
    kHalfClose,  // the receiver sees EOF after exactly these bytes; the sender sees nothing yet
    kClose,      // both ends see EOF
    kReset,      // the client sees a reset, which may overtake bytes
    kSilence,    // nothing is forwarded until Release()
    kFlip,       // a message byte is altered
  };
  Kind kind = Kind::kClose;
  uint64_t after = 0;
  bool upward = false;  // the client's bytes, else the server's
  uint8_t bits = 1;     // for kFlip
};

// Listens on a loopback TCP port. Each connection gets its own connection to the target, a
// "unix:///path". One poll() thread serves them all.
class FaultProxy {
 public:
  // `chunk`: the most bytes forwarded at once.
  explicit FaultProxy(const std::string& target, size_t chunk = 16384)
      : path_(target.substr(std::string("unix://").size())), chunk_(chunk) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        listen(listener_, 128) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("the proxy can't listen");
    }
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this] { Run(); });
  }

  ~FaultProxy() {
    Command([this] { stop_ = true; });
    thread_.join();
    for (Connection& connection : connections_) connection.Close();
    close(listener_);
    close(wake_);
  }
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  const std::string& address() const { return address_; }

  // Replaces a pending fault and restarts the count of bytes.
  void Arm(std::optional<WireFault> fault) {
    Command([&] {
      fault_ = fault;
      counted_ = {0, 0};
      counted_in_messages_ = {0, 0};
    });
  }
  // Closes all connections.
  void Cut() {
    Command([this] { cut_ = true; });
  }
  // Ends kSilence; held-back bytes are forwarded.
  void Release() {
    Command([this] { silent_ = false; });
  }

  // Bytes that went down (to clients) or up since Arm().
  uint64_t counted(bool upward) const {
    const std::lock_guard lock(mutex_);
    return counted_[upward ? 1 : 0];
  }
  // Those of them that kFlip counts.
  uint64_t counted_in_messages(bool upward) const {
    const std::lock_guard lock(mutex_);
    return counted_in_messages_[upward ? 1 : 0];
  }
  // The number of faults that have happened.
  int fired() const {
    const std::lock_guard lock(mutex_);
    return fired_;
  }

 private:
  // Separates message bytes from others: the payload of HTTP/2 DATA frames.
  class Frames {
   public:
    explicit Frames(size_t preface) : skip_(preface) {}
    bool IsOfMessage(char byte) {
      if (skip_ > 0) {
        --skip_;
        return false;
      }
      if (left_ > 0) {
        --left_;
        return is_data_;
      }
      header_ += byte;
      if (header_.size() < 9) return false;
      const auto at = [this](size_t i) { return size_t{static_cast<uint8_t>(header_[i])}; };
      left_ = at(0) << 16 | at(1) << 8 | at(2);
      is_data_ = at(3) == 0;
      header_.clear();
      return false;
    }

   private:
    size_t skip_;
    std::string header_;
    size_t left_ = 0;  // of the frame's payload
    bool is_data_ = false;
  };

  // One direction of a connection: bytes that were read but not written yet.
  struct Direction {
    std::string waiting = {};
    bool ended = false;      // reading has ended
    bool shut = false;       // the other end has been shut down
    bool close_all = false;  // once `waiting` is empty
  };

  struct Connection {
    // [0] the client's socket, [1] the server's.
    std::array<int, 2> fds = {-1, -1};
    // [0] down: from the server to the client, [1] up.
    std::array<Direction, 2> directions = {};
    // A client starts with 24 bytes outside any frame.
    std::array<Frames, 2> frames = {Frames(0), Frames(24)};

    void Close() {
      for (int& fd : fds) {
        if (fd >= 0) close(fd);
        fd = -1;
      }
    }
    void Reset() {
      const linger now = {.l_onoff = 1, .l_linger = 0};
      setsockopt(fds[0], SOL_SOCKET, SO_LINGER, &now, sizeof now);
      Close();
    }
    bool open() const { return fds[0] >= 0; }
    int source(size_t direction) const { return fds[1 - direction]; }
    int sink(size_t direction) const { return fds[direction]; }
  };

  template <typename Function>
  void Command(Function function) {
    {
      const std::lock_guard lock(mutex_);
      function();
    }
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
  }

  void Run() {
    std::vector<pollfd> polled;
    for (;;) {
      polled = {{.fd = wake_, .events = POLLIN, .revents = 0},
                {.fd = listener_, .events = POLLIN, .revents = 0}};
      {
        const std::lock_guard lock(mutex_);
        if (stop_) return;
        if (std::exchange(cut_, false)) {
          for (Connection& connection : connections_) connection.Close();
        }
        connections_.remove_if([](const Connection& c) { return !c.open(); });
        for (const Connection& connection : connections_) {
          for (size_t end = 0; end < 2; ++end) {
            // A socket is the sink of its own direction and the source of the other.
            int events = 0;
            if (!silent_) {
              if (!connection.directions[end].waiting.empty()) events |= POLLOUT;
              const Direction& from = connection.directions[1 - end];
              if (!from.ended && from.waiting.empty()) events |= POLLIN;
            }
            polled.push_back({.fd = events == 0 ? -1 : connection.fds[end],
                              .events = static_cast<int16_t>(events),
                              .revents = 0});
          }
        }
      }
      poll(polled.data(), polled.size(), -1);
      uint64_t count = 0;
      while (read(wake_, &count, sizeof count) > 0) continue;
      const std::lock_guard lock(mutex_);
      size_t at = 2;
      for (Connection& connection : connections_) {
        for (size_t end = 0; end < 2; ++end, ++at) {
          if (polled[at].revents == 0 || !connection.open() || silent_) continue;
          if ((polled[at].events & POLLOUT) != 0) Write(connection, end);
          if (connection.open() && (polled[at].events & POLLIN) != 0) Read(connection, 1 - end);
        }
      }
      if (polled[1].revents != 0) Accept();
    }
  }

  // The caller of the functions below holds the lock.

  void Accept() {
    for (;;) {
      const int client = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (client < 0) return;
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      path_.copy(address.sun_path, sizeof address.sun_path - 1);
      const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connect(server, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        // No server: the client's connection ends at once.
        close(server);
        close(client);
        continue;
      }
      fcntl(server, F_SETFL, O_NONBLOCK);
      connections_.emplace_back().fds = {client, server};
    }
  }

  void Read(Connection& connection, size_t direction) {
    Direction& way = connection.directions[direction];
    std::string bytes(chunk_, '\0');
    const ssize_t got = recv(connection.source(direction), bytes.data(), bytes.size(), 0);
    if (got < 0) {
      if (errno != EAGAIN && errno != EINTR) connection.Close();
      return;
    }
    bytes.resize(static_cast<size_t>(got));
    if (got == 0) way.ended = true;
    Count(connection, direction, bytes);
    way.waiting = std::move(bytes);
    if (connection.open()) Write(connection, direction);
  }

  void Count(Connection& connection, size_t direction, std::string& bytes) {
    const uint64_t before = counted_[direction];
    counted_[direction] += bytes.size();
    const bool meant = fault_.has_value() && (fault_->upward ? 1u : 0u) == direction;
    for (char& byte : bytes) {
      if (!connection.frames[direction].IsOfMessage(byte)) continue;
      const uint64_t number = counted_in_messages_[direction]++;
      if (!meant || !fault_.has_value() || fault_->kind != WireFault::Kind::kFlip ||
          number != fault_->after) {
        continue;
      }
      byte = static_cast<char>(byte ^ fault_->bits);
      fault_.reset();
      ++fired_;
    }
    if (!meant || !fault_.has_value() || fault_->kind == WireFault::Kind::kFlip) return;
    using Kind = WireFault::Kind;
    if (counted_[direction] < fault_->after || bytes.empty()) return;
    const WireFault fault = *std::exchange(fault_, std::nullopt);
    const auto at = static_cast<size_t>(fault.after - std::min(fault.after, before));
    ++fired_;
    Direction& way = connection.directions[direction];
    switch (fault.kind) {
      case Kind::kHalfClose:
        bytes.resize(at);
        way.ended = true;
        break;
      case Kind::kClose:
        bytes.resize(at);
        way.ended = true;
        way.close_all = true;
        break;
      case Kind::kReset:
        connection.Reset();
        break;
      case Kind::kSilence:
        silent_ = true;
        break;
      case Kind::kFlip:
        break;
    }
  }

  void Write(Connection& connection, size_t direction) {
    if (silent_) return;
    Direction& way = connection.directions[direction];
    while (!way.waiting.empty()) {
      const ssize_t sent =
          send(connection.sink(direction), way.waiting.data(), way.waiting.size(), MSG_NOSIGNAL);
      if (sent < 0) {
        if (errno != EAGAIN && errno != EINTR) connection.Close();
        return;
      }
      way.waiting.erase(0, static_cast<size_t>(sent));
    }
    if (!way.ended) return;
    if (way.close_all) return connection.Close();
    if (!std::exchange(way.shut, true)) shutdown(connection.sink(direction), SHUT_WR);
    const Direction& other = connection.directions[1 - direction];
    if (other.shut) connection.Close();
  }

  const std::string path_;
  const size_t chunk_;
  std::string address_;
  int listener_ = -1;
  int wake_ = -1;
  std::list<Connection> connections_;  // used only by the thread and the destructor

  mutable std::mutex mutex_;
  std::optional<WireFault> fault_;
  std::array<uint64_t, 2> counted_ = {0, 0};
  std::array<uint64_t, 2> counted_in_messages_ = {0, 0};
  int fired_ = 0;
  bool silent_ = false;
  bool cut_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_SUPPORT_FAULT_PROXY_H_

// Connects a socket to an address, without blocking the loop.
#ifndef CBT_RPC_TRANSPORT_HTTP2_CLIENT_CONNECTOR_H_
#define CBT_RPC_TRANSPORT_HTTP2_CLIENT_CONNECTOR_H_

#include <netdb.h>

#include <chrono>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "rpc/transport/http2/event_loop.h"
#include "rpc/transport/listen_address.h"

namespace cbt::rpc::http2 {

// One attempt at a time: the addresses of the host are tried in the system's order. In the loop
// only.
class Connector final : private Watch {
 public:
  class Listener {
   public:
    // A connected socket, non-blocking; or UNAVAILABLE and why no address could be connected.
    // Never called inside Start(). The connector may be started again, or destroyed.
    virtual void OnConnected(absl::StatusOr<OwnedDescriptor> socket) noexcept = 0;

   protected:
    ~Listener() = default;
  };

  // `loop`, `address` and `listener` outlive the connector.
  Connector(EventLoop& loop, const Address& address, Listener& listener) noexcept;
  // Gives the attempt up.
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // Ends with OnConnected(), after `time` at the latest. Not while an attempt is running.
  void Start(std::chrono::milliseconds time) noexcept;

  bool running() const noexcept { return running_; }

 private:
  using Clock = EventLoop::Clock;
  class Lookup;

  void Begin() noexcept;
  void OnResolved(int error, addrinfo* list) noexcept;
  void TryNext() noexcept;
  void TryUnix() noexcept;
  void TryAddress(int family, const sockaddr* address, socklen_t length) noexcept;
  void OnReady(uint32_t events) noexcept override;
  void OnTime() noexcept;
  void OnRefused(int error) noexcept;
  void CloseSocket() noexcept;
  void Succeed() noexcept;
  void Fail(absl::Status status) noexcept;
  void FailWith(int error) noexcept;

  struct FreeList {
    void operator()(addrinfo* list) const noexcept { freeaddrinfo(list); }
  };

  EventLoop& loop_;
  const Address& address_;
  Listener& listener_;
  bool running_ = false;
  Clock::time_point end_;
  OwnedDescriptor socket_;
  bool watched_ = false;
  bool retry_ = false;  // the socket's queue is full: the timer tries again
  int error_ = 0;       // of the last address that refused
  std::shared_ptr<Lookup> lookup_;
  std::unique_ptr<addrinfo, FreeList> list_;
  const addrinfo* next_ = nullptr;
  size_t left_ = 0;  // addresses from `next_` on
  MemberTask<Connector, &Connector::Begin> begin_{*this};
  MemberTimer<Connector, &Connector::OnTime> timer_{*this};
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_TRANSPORT_HTTP2_CLIENT_CONNECTOR_H_

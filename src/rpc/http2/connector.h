// Connects a socket to an address, without blocking the loop.
#ifndef CBT_RPC_HTTP2_CONNECTOR_H_
#define CBT_RPC_HTTP2_CONNECTOR_H_

#include <netdb.h>

#include <chrono>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "net/address.h"
#include "net/event_loop.h"

namespace cbt::rpc::http2 {

// Makes one attempt at a time, trying the host's addresses in the system's order. Use in the loop
// only.
class Connector final : private net::Watch {
 public:
  class Listener {
   public:
    // A connected, non-blocking socket; NOT_FOUND if the host has no address; or UNAVAILABLE with
    // the reason. Never called within Start(). The connector may be restarted or destroyed here.
    virtual void OnConnected(absl::StatusOr<OwnedDescriptor> socket) noexcept = 0;

   protected:
    ~Listener() = default;
  };

  // `loop`, `address` and `listener` outlive the connector.
  Connector(net::EventLoop& loop, const net::Address& address, Listener& listener) noexcept;
  // Abandons the attempt.
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // Ends with OnConnected(), after at most `time`. Not while an attempt is running.
  void Start(std::chrono::milliseconds time) noexcept;

  bool running() const noexcept { return running_; }

 private:
  using Clock = net::EventLoop::Clock;
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

  net::EventLoop& loop_;
  const net::Address& address_;
  Listener& listener_;
  bool running_ = false;
  Clock::time_point end_;
  OwnedDescriptor socket_;
  bool watched_ = false;
  bool retry_ = false;  // the socket's queue is full: the timer retries
  int error_ = 0;       // errno of the last address that refused
  std::shared_ptr<Lookup> lookup_;
  std::unique_ptr<addrinfo, FreeList> list_;
  const addrinfo* next_ = nullptr;
  size_t left_ = 0;  // addresses from `next_` on
  net::MemberTask<Connector, &Connector::Begin> begin_{*this};
  net::MemberTimer<Connector, &Connector::OnTime> timer_{*this};
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_CONNECTOR_H_

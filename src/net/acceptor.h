// A listening socket.
#ifndef CBT_NET_ACCEPTOR_H_
#define CBT_NET_ACCEPTOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "net/address.h"
#include "net/event_loop.h"

namespace cbt::net {

// Listening sockets for `address`: one, or one per address of a host name. Port 0 is replaced by
// the port that the system chose. A Unix socket's mode is never wider than kSocketMode. Errors:
// FAILED_PRECONDITION if the address is in use, UNAVAILABLE if the system refuses.
absl::StatusOr<std::vector<OwnedDescriptor>> ListenAt(Address& address);

// Accepts from one socket, in one loop. When descriptors run out, it closes waiting connections and
// continues to accept. The last quarter of the descriptors, at most 64, is reserved for calls.
class Acceptor final : private Watch {
 public:
  using Take = std::function<void(OwnedDescriptor connection)>;

  // `take` must not throw. Errors: UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Create(EventLoop& loop, OwnedDescriptor socket,
                                                          Take take);
  // Call in the loop, or while it does not run.
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

 private:
  Acceptor(EventLoop& loop, OwnedDescriptor socket, Take take);
  void OnReady(uint32_t events) noexcept override;
  void OnNoDescriptors() noexcept;
  void Resume() noexcept;

  EventLoop& loop_;
  const OwnedDescriptor socket_;
  const Take take_;
  OwnedDescriptor spare_;  // closed temporarily to accept and close a connection
  MemberTimer<Acceptor, &Acceptor::Resume> timer_{*this};
};

}  // namespace cbt::net

#endif  // CBT_NET_ACCEPTOR_H_

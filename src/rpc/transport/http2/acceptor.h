// A listening socket.
#ifndef CBT_RPC_TRANSPORT_HTTP2_ACCEPTOR_H_
#define CBT_RPC_TRANSPORT_HTTP2_ACCEPTOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "rpc/transport/http2/event_loop.h"
#include "rpc/transport/listen_address.h"

namespace cbt::rpc::http2 {

// Sockets that listen at `address`: one, or one for each address of a host's name. A port of 0 is
// replaced by the one that the system chose.
// Errors: FAILED_PRECONDITION if the address is in use, UNAVAILABLE if the system refuses.
absl::StatusOr<std::vector<OwnedDescriptor>> ListenAt(Address& address);

// Accepts from one socket, in one loop. When descriptors run out, connections that wait are closed,
// and accepting goes on. The last quarter of them, at most 64, is left for what calls open.
class Acceptor final : private Watch {
 public:
  using Take = std::function<void(OwnedDescriptor connection)>;

  // `take` must not throw. Errors: UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Create(EventLoop& loop, OwnedDescriptor socket,
                                                          Take take);
  // In the loop, or while it does not run.
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
  OwnedDescriptor spare_;  // given up to accept and close a connection
  MemberTimer<Acceptor, &Acceptor::Resume> timer_{*this};
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_TRANSPORT_HTTP2_ACCEPTOR_H_

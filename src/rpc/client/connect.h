// Channels to servers, and when a client tries again or gives up.
#ifndef CBT_RPC_CLIENT_CONNECT_H_
#define CBT_RPC_CLIENT_CONNECT_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/rpc/options.h"
#include "net/address.h"
#include "net/loop_threads.h"
#include "rpc/transport/client_call.h"

namespace cbt::rpc {

// A channel for one stream: a channel's own backoff after a broken connection may be longer than
// the cursor's own waits. The cursor resumes streams, because it knows the offset.
// Errors: INVALID_ARGUMENT for a CA, certificate or key that can't be used, UNAVAILABLE and
//         RESOURCE_EXHAUSTED if the system lacks something. Connects with the first call.
absl::StatusOr<std::shared_ptr<Channel>> ConnectForOneStream(const net::Address& address,
                                                             const ClientTlsOptions& tls);

// The same for a consumer that waits in InboundStream::Next() or UnaryCall::Run(): its thread does
// the transport's work then, see Channel::HandleEvents().
absl::StatusOr<std::shared_ptr<Channel>> ConnectForConsumer(const net::Address& address,
                                                            const ClientTlsOptions& tls);

// A channel for any number of streams, which reconnects soon after the server is back. Errors as
// above.
absl::StatusOr<std::shared_ptr<Channel>> ConnectForGood(const net::Address& address,
                                                        const ClientTlsOptions& tls);

// The same, a channel for each of `loops` in their order. Its events come from that loop, so that
// there is no hand-over between threads to what else the loop does. The loops must outlive the
// channels and their calls. Do not wait for a call in one of the loops' threads.
absl::StatusOr<std::vector<std::shared_ptr<Channel>>> ConnectInLoops(const net::Address& address,
                                                                     const ClientTlsOptions& tls,
                                                                     net::LoopThreads& loops);

// The waits between attempts. The first failure opens a window of time; attempts follow each other
// until it is used up, the last one at its very end. Progress closes the window. Waits double from
// 0.1 s to 5 s; each is shortened by a random part of at most half, so that clients of a server
// that restarts do not come back all at once. Belongs to one thread at a time.
class RetryWindow {
 public:
  using Clock = std::chrono::steady_clock;

  // `length` <= 0: no attempt but the first.
  explicit RetryWindow(std::chrono::milliseconds length);

  // Something arrived that had not arrived before.
  void NoteProgress() noexcept { began_.reset(); }

  // An attempt failed at `now`: the time to wait before the next one; empty if it was the last.
  std::optional<std::chrono::milliseconds> NextWait(Clock::time_point now);

 private:
  const std::chrono::milliseconds length_;
  std::optional<Clock::time_point> began_;  // of the first failure since the last progress
  std::chrono::milliseconds backoff_{0};
  std::minstd_rand random_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CLIENT_CONNECT_H_

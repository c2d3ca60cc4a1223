// Channels over our own HTTP/2.
#ifndef CBT_RPC_HTTP2_CHANNEL_H_
#define CBT_RPC_HTTP2_CHANNEL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "cbt/rpc/options.h"
#include "cbt/units.h"
#include "net/address.h"
#include "rpc/http2/client_loop.h"
#include "rpc/transport/client_call.h"

namespace cbt::rpc::http2 {

struct ChannelOptions {
  // After a failed attempt, calls fail until the next attempt is allowed, 100 ms to 1 s later. If
  // true, each call makes an attempt: for channels of a single stream whose caller waits by itself.
  bool reconnect_at_once = false;

  // The channel's events run in the threads that wait in HandleEvents(); while none waits, up to a
  // quarter of a second late. Not allowed with a loop of the caller's.
  bool events_in_waiting_threads = false;

  // Longer messages (bytes) end their call with RESOURCE_EXHAUSTED.
  size_t max_message_bytes = 4 * kMiB;
  // The most a stream may receive before its handler takes it: an unread call holds this much plus
  // the rest of a message.
  uint32_t stream_window_bytes = kMiB;

  // For one attempt: for all addresses of the host, and again for TLS and the server's SETTINGS.
  std::chrono::milliseconds connect_time = std::chrono::seconds(20);
  // By default, servers disconnect clients that ping more often than every five minutes.
  std::chrono::milliseconds keepalive_time = std::chrono::minutes(6);
  std::chrono::milliseconds keepalive_timeout = std::chrono::seconds(20);
};

// A channel that connects on demand. It runs in `loop` or, if that is null, in the process's loop.
// A loop of the caller's must run until the channel and its calls are destroyed; do not call
// Connect() in it. Events of calls run in the loop.
//
// A call without a connection waits for the attempt; if that fails, the call ends with UNAVAILABLE
// and the reason. A broken connection ends its calls with UNAVAILABLE; GOAWAY ends those that the
// server has not processed.
//
// Errors: INVALID_ARGUMENT for a CA, certificate or key that can't be used, UNAVAILABLE if the
//        system refuses a thread or descriptors, RESOURCE_EXHAUSTED without memory.
absl::StatusOr<std::shared_ptr<Channel>> MakeChannel(
    const net::Address& address, const ClientTlsOptions& tls, const ChannelOptions& options = {},
    std::shared_ptr<const ClientLoop> loop = nullptr);

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_CHANNEL_H_

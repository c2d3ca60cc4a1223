// Logs and metrics of servers and relays. The library itself writes nowhere: the application
// provides the sinks.
#ifndef CBT_RPC_TELEMETRY_H_
#define CBT_RPC_TELEMETRY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cbt/rpc/options.h"

namespace cbt::rpc {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// "debug", "info", "warning" or "error".
std::string_view LogLevelName(LogLevel level) noexcept;

struct LogField {
  std::string_view key;
  std::string value;
};

// Receives log records. Called from any thread, including those that serve connections, so it must
// not block for long or call the library.
//
// At no level do records hold tokens, secrets or contents of requests. The only error texts are
// those of a relay's plugin, unless they resemble a secret of the request. Values may hold snapshot
// names and other input from outside, so a sink that writes lines must escape them.
class LogSink {
 public:
  virtual ~LogSink() = default;
  // Records of levels for which this returns false are not created.
  virtual bool Wants(LogLevel level) const noexcept = 0;
  // `event` is one of a fixed set of short phrases; the fields hold the details. The field "stream"
  // has the same value in all records of one stream.
  virtual void Write(LogLevel level, std::string_view event,
                     std::span<const LogField> fields) noexcept = 0;
};

// What is known when a stream or a page begins.
struct StreamKind {
  Api api = Api::kCsi;
  bool delta = false;
  bool resumed = false;  // the starting offset is not 0
};

// Why a stream ended.
enum class EndReason {
  kCompleted,  // everything was sent
  kSource,     // the provider or the plugin failed
  kRefused,    // invalid request, or access denied
  kClient,     // cancelled by the client, or the connection was lost
  kStalled,    // the client took nothing for stall_timeout
  kTimeLimit,  // open for longer than total_time
  kDrained,    // the server was shutting down
};
inline constexpr size_t kEndReasons = static_cast<size_t>(EndReason::kDrained) + 1;

// "completed", "source", "refused", "client", "stalled", "time_limit" or "drained".
std::string_view EndReasonName(EndReason reason) noexcept;

// Summary of a stream that ended.
struct StreamReport {
  StreamKind kind = {};
  absl::StatusCode code = absl::StatusCode::kOk;
  EndReason reason = EndReason::kCompleted;
  uint64_t messages = 0;
  uint64_t tuples = 0;
  uint64_t reported_bytes = 0;  // of the volume
  uint64_t wire_bytes = 0;      // of messages
  std::chrono::nanoseconds to_first_message{0};
  std::chrono::nanoseconds total{0};
};

// Current load of a server.
struct ServerState {
  size_t connections = 0;
  size_t streams = 0;  // including pages
  size_t waiting = 0;  // calls whose request has not fully arrived
  size_t small_calls = 0;
  size_t health_watches = 0;
  size_t overdue = 0;  // cancelled calls that the transport has not released
  size_t memory = 0;   // bytes that connections hold, see ConnectionOptions::memory_quota
  // Since the start:
  uint64_t accepted = 0;  // connections, without those that were refused
  uint64_t received = 0;  // bytes of HTTP/2, without TLS
  uint64_t sent = 0;
  uint64_t resets = 0;  // streams that clients have reset
};

// Events of a server that are not part of a stream.
enum class ServerEvent {
  kConnectionCut,     // ended: the peer read nothing, and its calls could not be ended otherwise
  kHandshakeRefused,  // the client CA could not be trusted at that time
  kClientCaChanged,   // every connection was closed
  kClientCaUnusable,  // unreadable or not a certificate; every connection was closed
  kStreamRefused,     // too many streams are open
  kCallRefused,       // too many small calls or health watches are open

  kConnectionRefused,   // too many connections, or memory_quota is used up
  kHandshakeFailed,     // of TLS or HTTP/2, or it took longer than handshake_time
  kConnectionFlood,     // ended: too many resets, pings, headers or other frames
  kConnectionSilent,    // ended: the client did not answer a ping in time
  kConnectionTooLarge,  // ended: memory_quota was used up, and it held the most
  kConnectionAged,      // ended at max_age
  kConnectionIdle,      // ended after idle_time
  kConnectionReplaced,  // ended: it had no call that is served, and others needed its room
};
inline constexpr size_t kServerEvents = static_cast<size_t>(ServerEvent::kConnectionReplaced) + 1;

// "connection_cut", "handshake_refused", "client_ca_changed", "client_ca_unusable",
// "stream_refused", "call_refused", "connection_refused", "handshake_failed", "connection_flood",
// "connection_silent", "connection_too_large", "connection_aged", "connection_idle" or
// "connection_replaced".
std::string_view ServerEventName(ServerEvent event) noexcept;

// Counts streams, for metrics. The rules for calls of LogSink apply.
class StreamObserver {
 public:
  virtual ~StreamObserver() = default;
  virtual void OnOpen(const StreamKind& kind) noexcept = 0;
  // Called once for every OnOpen().
  virtual void OnClose(const StreamReport& report) noexcept = 0;
  // Called about once a second.
  virtual void OnState(const ServerState& state) noexcept { static_cast<void>(state); }
  virtual void OnEvent(ServerEvent event) noexcept { static_cast<void>(event); }
};

// Either may be null; both must outlive the server.
struct Telemetry {
  StreamObserver* observer = nullptr;
  LogSink* log = nullptr;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_TELEMETRY_H_

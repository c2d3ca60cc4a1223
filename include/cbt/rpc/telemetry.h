// What servers and relays tell about their streams. The library writes nowhere by itself: whoever
// wants logs or metrics hands in a sink.
#ifndef CBT_RPC_TELEMETRY_H_
#define CBT_RPC_TELEMETRY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cbt/rpc/api.h"

namespace cbt::rpc {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// "debug", "info", "warning" or "error".
std::string_view LogLevelName(LogLevel level) noexcept;

struct LogField {
  std::string_view key;
  std::string value;
};

// Takes log records. Called from any thread, also from gRPC's, so it must not block for long, and
// must not call the library.
//
// Records never hold tokens, secrets or the contents of requests, at no level, nor texts of errors
// but a plugin's in a relay (unless they resemble a secret of the request); snapshot names and
// whatever else came from outside may be in values, so a sink that writes lines escapes them.
class LogSink {
 public:
  virtual ~LogSink() = default;
  // Records of other levels are not made.
  virtual bool Wants(LogLevel level) const noexcept = 0;
  // `event` is one of a fixed set of short phrases; the fields tell the rest. A field "stream" is
  // the same in all records of one stream.
  virtual void Write(LogLevel level, std::string_view event,
                     std::span<const LogField> fields) noexcept = 0;
};

// What is known when a stream (or a page) begins.
struct StreamKind {
  Api api = Api::kCsi;
  bool delta = false;
  bool resumed = false;  // the starting offset is not 0
};

// Why a stream ended.
enum class EndReason {
  kCompleted,    // all of it was sent
  kSource,       // the provider or the plugin failed
  kRefused,      // the request, or who asked
  kClient,       // cancelled by the client, or the connection is gone
  kStalled,      // the client took nothing for stall_timeout
  kTimeLimit,    // total_time
  kRequestLate,  // no request came
  kDrained,      // the server was shutting down
};
inline constexpr size_t kEndReasons = static_cast<size_t>(EndReason::kDrained) + 1;

// "completed", "source", "refused", "client", "stalled", "time_limit", "request_late" or "drained".
std::string_view EndReasonName(EndReason reason) noexcept;

// What one stream was, at its end.
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

// What a server holds at a moment.
struct ServerState {
  size_t connections = 0;
  size_t streams = 0;  // pages among them
  size_t waiting = 0;  // of these, with a request that has not come whole
  size_t small_calls = 0;
  size_t health_watches = 0;
  size_t overdue = 0;  // cancelled calls that the transport has not let go of
};

// What happens to a server beside streams.
enum class ServerEvent {
  kConnectionCut,     // its peer took nothing, and calls on it could not be ended otherwise
  kHandshakeRefused,  // while the client CA could not be trusted
  kClientCaChanged,   // every connection was closed
  kClientCaUnusable,  // can't be read, or is no certificate; every connection was closed
  kStreamRefused,     // as many are open as may be
  kCallRefused,       // likewise of small calls and health watches
};
inline constexpr size_t kServerEvents = static_cast<size_t>(ServerEvent::kCallRefused) + 1;

// "connection_cut", "handshake_refused", "client_ca_changed", "client_ca_unusable",
// "stream_refused" or "call_refused".
std::string_view ServerEventName(ServerEvent event) noexcept;

// Counts streams, for metrics. Called as LogSink is.
class StreamObserver {
 public:
  virtual ~StreamObserver() = default;
  virtual void OnOpen(const StreamKind& kind) noexcept = 0;
  // Once for every OnOpen().
  virtual void OnClose(const StreamReport& report) noexcept = 0;
  // About once a second.
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

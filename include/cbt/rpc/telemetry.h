// What servers and relays tell about their streams. The library writes nowhere by itself: whoever
// wants logs or metrics hands in a sink.
#ifndef CBT_RPC_TELEMETRY_H_
#define CBT_RPC_TELEMETRY_H_

#include <chrono>
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

// What one stream was, at its end.
struct StreamReport {
  StreamKind kind = {};
  absl::StatusCode code = absl::StatusCode::kOk;
  uint64_t messages = 0;
  uint64_t tuples = 0;
  uint64_t reported_bytes = 0;  // of the volume
  uint64_t wire_bytes = 0;      // of messages
  std::chrono::nanoseconds to_first_message{0};
  std::chrono::nanoseconds total{0};
};

// Counts streams, for metrics. Called as LogSink is.
class StreamObserver {
 public:
  virtual ~StreamObserver() = default;
  virtual void OnOpen(const StreamKind& kind) noexcept = 0;
  // Once for every OnOpen().
  virtual void OnClose(const StreamReport& report) noexcept = 0;
};

// Either may be null; both must outlive the server.
struct Telemetry {
  StreamObserver* observer = nullptr;
  LogSink* log = nullptr;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_TELEMETRY_H_

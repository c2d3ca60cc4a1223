// Reports one stream to an observer and a log.
#ifndef CBT_RPC_SERVER_STREAM_TELEMETRY_H_
#define CBT_RPC_SERVER_STREAM_TELEMETRY_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "cbt/rpc/telemetry.h"

namespace cbt::rpc {

// Movable; the destructor reports a stream without End() as cancelled.
class StreamTelemetry {
 public:
  StreamTelemetry(const Telemetry& telemetry, const StreamKind& kind);
  ~StreamTelemetry();
  StreamTelemetry(StreamTelemetry&& other) noexcept;
  StreamTelemetry& operator=(StreamTelemetry&&) = delete;
  StreamTelemetry(const StreamTelemetry&) = delete;
  StreamTelemetry& operator=(const StreamTelemetry&) = delete;

  // The number of the stream in this process and in logs.
  uint64_t id() const noexcept { return id_; }

  // Before that, strangers decide how often a stream ends: its record is marked, and LimitedLog
  // passes few of those on.
  void Admitted() noexcept { admitted_ = true; }
  void Message(uint64_t tuples, uint64_t reported, uint64_t wire_bytes);
  // Only the first call counts. `reason` is used if the status is not OK.
  void End(const absl::Status& status, EndReason reason) noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  // A line is dropped if there is no memory for it: the call matters more than its log.
  void LogOpened() const noexcept;
  void LogClosed(LogLevel level) const noexcept;

  Telemetry telemetry_;
  StreamReport report_;
  uint64_t id_;
  Clock::time_point opened_at_ = Clock::now();
  bool open_ = true;
  bool admitted_ = false;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_STREAM_TELEMETRY_H_

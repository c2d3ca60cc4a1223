// Counts and logs events of a server that are not part of a stream.
#ifndef CBT_RPC_CONTRACT_SERVER_EVENT_H_
#define CBT_RPC_CONTRACT_SERVER_EVENT_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>

#include "cbt/rpc/telemetry.h"

namespace cbt::rpc {

// Counts the event, and logs it: as a warning, unless it is an end that the options ask for.
void Report(const Telemetry& telemetry, ServerEvent event) noexcept;

// The record of a stream's end, and the last field of one that was never admitted.
inline constexpr std::string_view kStreamClosed = "stream closed";
inline const LogField kNotAdmitted{"admitted", "false"};

// Passes records to another sink, but those that strangers cause at a limited rate: those of
// Report(), and ends of streams with kNotAdmitted. Of each event, kBurst at once and one each
// kInterval; the field "unlogged" of the next one says how many were left out. Thread safe.
class LimitedLog final : public LogSink {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr unsigned kBurst = 10;
  static constexpr std::chrono::seconds kInterval{10};

  // `sink` outlives this.
  explicit LimitedLog(LogSink& sink, Clock::time_point (*now)() = &Clock::now) noexcept
      : sink_(sink), now_(now) {}

  bool Wants(LogLevel level) const noexcept override { return sink_.Wants(level); }
  void Write(LogLevel level, std::string_view event,
             std::span<const LogField> fields) noexcept override;

 private:
  struct Count {
    unsigned allowed = kBurst;
    Clock::time_point since;  // when `allowed` last grew
    uint64_t unlogged = 0;
  };

  LogSink& sink_;
  Clock::time_point (*const now_)();
  std::mutex mutex_;
  std::array<Count, kServerEvents + 1> counts_;  // the last one: streams not admitted
};

// A server's telemetry with a limited log.
class LimitedTelemetry {
 public:
  explicit LimitedTelemetry(const Telemetry& telemetry);
  LimitedTelemetry(const LimitedTelemetry&) = delete;
  LimitedTelemetry& operator=(const LimitedTelemetry&) = delete;

  const Telemetry& get() const noexcept { return telemetry_; }

 private:
  std::optional<LimitedLog> log_;
  Telemetry telemetry_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_SERVER_EVENT_H_

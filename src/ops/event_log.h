// Log records of a program about itself.
#ifndef CBT_OPS_EVENT_LOG_H_
#define CBT_OPS_EVENT_LOG_H_

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <string_view>

#include "absl/status/status.h"
#include "cbt/rpc/telemetry.h"

namespace cbt::ops {

// Writes to a sink, a bounded number of records a second: what each failing request logs must not
// fill a disk. The number that was left out is a field of the next record. Thread safe.
class EventLog {
 public:
  static constexpr int kMaxPerSecond = 20;

  // `sink` may be null, and must outlive the object.
  explicit EventLog(rpc::LogSink* sink) : sink_(sink) {}

  // `event` is one of a fixed set of phrases. Fields never hold tokens or secrets.
  void Write(rpc::LogLevel level, std::string_view event,
             std::initializer_list<rpc::LogField> fields = {}) noexcept;
  // A warning with the code and the text of an API server's or a plugin's error.
  void Failed(std::string_view event, const absl::Status& error,
              std::initializer_list<rpc::LogField> fields = {}) noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  // False: too many in this second. `omitted`: how many were left out before.
  bool Admit(uint64_t& omitted);

  rpc::LogSink* const sink_;
  std::mutex mutex_;
  Clock::time_point second_ = {};
  int written_ = 0;
  uint64_t omitted_ = 0;
};

}  // namespace cbt::ops

#endif  // CBT_OPS_EVENT_LOG_H_

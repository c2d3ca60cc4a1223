// How long a served call has waited for its client.
#ifndef CBT_RPC_SERVER_CALL_CLOCK_H_
#define CBT_RPC_SERVER_CALL_CLOCK_H_

#include <chrono>
#include <optional>

namespace cbt::rpc {

// Starts with the call. Not thread safe. Everything is O(1).
class CallClock {
 public:
  using Clock = std::chrono::steady_clock;

  enum class Verdict {
    kInTime,
    kStalled,    // the transport could not get rid of a message, or of the status, for too long
    kTimeLimit,  // the call is open for too long
  };

  explicit CallClock(Clock::time_point now = Clock::now()) noexcept : opened_at_(now) {}

  // The transport gets a message, or the status.
  void StartSending(Clock::time_point now = Clock::now()) noexcept { handed_over_at_ = now; }

  // The transport has sent the message. Returns how long that took. Requires: StartSending() was
  // called.
  Clock::duration Sent(Clock::time_point now = Clock::now()) noexcept {
    const Clock::duration took = now - handed_over_at_.value_or(now);
    handed_over_at_.reset();
    return took;
  }

  // Whether the transport has been sending the same message for longer than `time`.
  bool Waits(std::chrono::milliseconds time, Clock::time_point now = Clock::now()) const noexcept {
    return handed_over_at_.has_value() && now - *handed_over_at_ > time;
  }

  // `stall`: how long sending may take. `total`: how long the call may be open; zero: no limit.
  // `ending`: its status is already decided, so only a stall matters.
  Verdict Judge(std::chrono::milliseconds stall, std::chrono::milliseconds total, bool ending,
                Clock::time_point now = Clock::now()) const noexcept {
    if (Waits(stall, now)) return Verdict::kStalled;
    if (ending) return Verdict::kInTime;
    const bool too_long = total.count() > 0 && now - opened_at_ > total;
    return too_long ? Verdict::kTimeLimit : Verdict::kInTime;
  }

 private:
  Clock::time_point opened_at_;
  std::optional<Clock::time_point> handed_over_at_;  // of what is being sent
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_CALL_CLOCK_H_

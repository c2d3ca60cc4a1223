#include "rpc/http2/connection_limits.h"

#include <algorithm>

namespace cbt::rpc::http2 {
namespace {

using std::chrono::milliseconds;

// How long the peer may take to answer the first GOAWAY, and to read the last frames.
constexpr milliseconds kDrainTime{1000};
constexpr milliseconds kLastWordsTime{1000};

// For a peer without streams that does not read what waits for it.
constexpr milliseconds kStallWithoutStreams{5000};

// Keeps a timer from making the loop spin.
constexpr milliseconds kShortestWait{5};

bool Passed(milliseconds time, TimeLimits::Clock::time_point since,
            TimeLimits::Clock::time_point now) noexcept {
  return time.count() > 0 && now - since >= time;
}

}  // namespace

TimeLimits::TimeLimits(const ConnectionSettings& settings, Clock::time_point now) noexcept
    : settings_(settings), born_(now), last_read_(now), last_write_(now), last_stream_(now) {}

void TimeLimits::NoteBarred(bool barred, Clock::time_point now) noexcept {
  if (barred && !barred_) barred_since_ = now;
  barred_ = barred;
}

bool TimeLimits::LastFramesLate(const State& state, Clock::time_point now) const noexcept {
  return state.terminating && Passed(kLastWordsTime, terminate_began_, now);
}

bool TimeLimits::HandshakeLate(const State& state, Clock::time_point now) const noexcept {
  return !state.terminating && !state.ready && Passed(settings_.handshake_time, born_, now);
}

bool TimeLimits::BarredTooLong(Clock::time_point now) const noexcept {
  return barred_ && Passed(settings_.handshake_time, barred_since_, now);
}

milliseconds TimeLimits::StallTime(const State& state) const noexcept {
  return state.streams > 0 ? settings_.write_stall_time
                           : std::min(settings_.write_stall_time, kStallWithoutStreams);
}

bool TimeLimits::Stalled(const State& state, Clock::time_point now) const noexcept {
  return state.write_blocked && Passed(StallTime(state), last_write_, now);
}

bool TimeLimits::Aged(Clock::time_point now) const noexcept {
  return Passed(settings_.max_age, born_, now);
}

bool TimeLimits::TooOld(Clock::time_point now) const noexcept {
  return Passed(2 * settings_.max_age, born_, now);
}

bool TimeLimits::Idle(const State& state, Clock::time_point now) const noexcept {
  return state.streams == 0 && Passed(settings_.idle_time, last_stream_, now);
}

bool TimeLimits::LastGoawayDue(const State& state, Clock::time_point now) const noexcept {
  return state.awaits_last_goaway && Passed(kDrainTime, drain_began_, now);
}

TimeLimits::Silence TimeLimits::Keepalive(const State& state, Clock::time_point now) noexcept {
  if (settings_.keepalive_time.count() == 0 || !state.ready) return Silence::kNone;
  if (ping_open_) {
    return now - ping_sent_ >= settings_.keepalive_timeout ? Silence::kSilent : Silence::kNone;
  }
  if (!settings_.keepalive_without_streams && state.streams == 0) return Silence::kNone;
  if (now - last_read_ < settings_.keepalive_time) return Silence::kNone;
  ping_open_ = true;
  ping_sent_ = now;
  return Silence::kPing;
}

TimeLimits::Clock::time_point TimeLimits::Next(const State& state,
                                               Clock::time_point now) const noexcept {
  Clock::time_point next = now + std::chrono::hours(1);
  const auto at = [&](milliseconds time, Clock::time_point since) {
    if (time.count() > 0) next = std::min(next, std::max(since + time, now + kShortestWait));
  };
  if (state.terminating) at(kLastWordsTime, terminate_began_);
  if (!state.ready) at(settings_.handshake_time, born_);
  if (barred_) at(settings_.handshake_time, barred_since_);
  if (state.write_blocked) at(StallTime(state), last_write_);
  at(state.draining ? 2 * settings_.max_age : settings_.max_age, born_);
  if (state.streams == 0 && !state.draining) at(settings_.idle_time, last_stream_);
  if (state.awaits_last_goaway) at(kDrainTime, drain_began_);
  if (state.ready && settings_.keepalive_time.count() > 0) {
    if (ping_open_) {
      at(settings_.keepalive_timeout, ping_sent_);
    } else {
      // After a period of silence the next check is a full period later.
      const Clock::time_point since =
          now - last_read_ < settings_.keepalive_time ? last_read_ : now;
      at(settings_.keepalive_time, since);
    }
  }
  return next;
}

}  // namespace cbt::rpc::http2

// How a connection ends: shutdown, errors, time limits.
#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/http2/connection.h"
#include "rpc/http2/session_callbacks.h"

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

}  // namespace

void Connection::EndOutOfMemory() noexcept {
  End(absl::Status(absl::StatusCode::kResourceExhausted, ""));
}

void Connection::End(const absl::Status& reason) noexcept {
  if (ended_) return;
  ended_ = true;
  reason_ = reason;
  loop_.Remove(socket_->fd(), *this);
  loop_.Cancel(timer_);
  loop_.Defer(end_task_);
}

void Connection::NoteCause(EndCause cause) noexcept {
  if (cause_ == EndCause::kOther && !ended_) cause_ = cause;
}

void Connection::EndFor(EndCause cause, const absl::Status& reason) noexcept {
  NoteCause(cause);
  End(reason);
}

// The socket is no longer of use. Without `text`: for the reason that it has.
void Connection::EndLost(std::string_view text) noexcept {
  try {
    const bool mute = settings_.role == Role::kClient && !received_ && socket_->ssl() == nullptr;
    End(absl::UnavailableError(absl::StrCat(
        text.empty() ? socket_->ErrorText() : std::string(text),
        mute ? ": the server has said nothing, it may be starting, or expect TLS" : "")));
  } catch (const std::bad_alloc&) {
    EndOutOfMemory();
  }
}

void Connection::FinishEnd() noexcept {
  while (first_stream_ != nullptr) {
    Stream& stream = *first_stream_;
    CloseStream(stream, {.by = StreamEnd::By::kConnection,
                         .code = NGHTTP2_NO_ERROR,
                         .unprocessed = settings_.role == Role::kClient && !stream.request_sent_});
  }
  output_.Clear();
  session_.reset();
  socket_->Shutdown();
  // May destroy this.
  listener_.OnClosed(*this, reason_);
}

void Connection::Close(const absl::Status& reason, EndCause cause) noexcept {
  EndFor(cause, reason);
}

void Connection::MakeRoom() noexcept {
  const absl::Status reason(absl::StatusCode::kResourceExhausted, "");
  NoteCause(EndCause::kRoom);
  const bool reads = ready_ && !write_blocked_ && output_.empty() && !socket_->unsent();
  if (!reads) return End(reason);
  Terminate(NGHTTP2_NO_ERROR, "the server needs the room", reason);
}

void Connection::Terminate(uint32_t code, std::string_view text,
                           const absl::Status& reason) noexcept {
  if (ended_ || terminating_) return;
  if (code == NGHTTP2_ENHANCE_YOUR_CALM) NoteCause(EndCause::kFlood);
  if (session_ == nullptr || !handshaken_) return End(reason);
  terminating_ = true;
  terminate_began_ = loop_.now();
  reason_ = reason;
  const int32_t last = nghttp2_session_get_last_proc_stream_id(session_.get());
  if (!Check(nghttp2_submit_goaway(session_.get(), NGHTTP2_FLAG_NONE, last, code,
                                   reinterpret_cast<const uint8_t*>(text.data()), text.size()))) {
    return;
  }
  ScheduleTimer();
}

void Connection::Shutdown() noexcept {
  if (ended_ || draining_) return;
  draining_ = true;
  drain_began_ = loop_.now();
  if (session_ == nullptr || !handshaken_) return End(absl::OkStatus());
  if (settings_.role == Role::kClient) {
    if (stream_count_ == 0) SendLastGoaway();
    return;
  }
  // Requests may be in flight: the last stream's number follows after a round trip.
  if (!Check(nghttp2_submit_shutdown_notice(session_.get()))) return;
  SendPing(kDrainPing);
  ScheduleTimer();
}

void Connection::SendLastGoaway() noexcept {
  if (ended_ || last_goaway_sent_) return;
  last_goaway_sent_ = true;
  const int32_t last = nghttp2_session_get_last_proc_stream_id(session_.get());
  Check(
      nghttp2_submit_goaway(session_.get(), NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, nullptr, 0));
}

// nghttp2 has detected that the peer breaks the protocol, and ends the session itself.
void Connection::NoteProtocolError(const nghttp2_frame& goaway) noexcept {
  if (terminating_) return;
  try {
    reason_ = absl::UnavailableError(
        absl::StrCat("HTTP/2: ", nghttp2_http2_strerror(goaway.goaway.error_code), ": ",
                     absl::string_view(reinterpret_cast<const char*>(goaway.goaway.opaque_data),
                                       goaway.goaway.opaque_data_len)));
  } catch (const std::bad_alloc&) {
    reason_ = absl::Status(absl::StatusCode::kUnavailable, "");
  }
  mismatched_ = !ready_;
  terminating_ = goaway_written_ = true;
  terminate_began_ = loop_.now();
  ScheduleTimer();
}

// ---- a server that takes no streams

void Connection::NoteStreamLimit() noexcept {
  const bool barred = nghttp2_session_get_remote_settings(
                          session_.get(), NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS) == 0;
  if (barred && !barred_) barred_since_ = loop_.now();
  barred_ = barred;
  ScheduleTimer();
}

// A server may say 0 for a moment only (RFC 9113, section 5.1.2). Calls must not wait here for
// ever: this is as good as its GOAWAY.
void Connection::LeaveBarred() noexcept {
  barred_ = false;
  goaway_received_ = true;
  listener_.OnGoaway(*this, NGHTTP2_NO_ERROR, "the server's limit of streams is 0");
  for (Stream* stream = first_stream_; stream != nullptr && !ended_;) {
    if (stream->request_sent_) {
      stream = stream->next_;
      continue;
    }
    Reset(*stream, NGHTTP2_CANCEL);
    stream->OnClosed(
        {.by = StreamEnd::By::kPeer, .code = NGHTTP2_REFUSED_STREAM, .unprocessed = true});
    // The list may have changed.
    stream = first_stream_;
  }
  Shutdown();
}

// ---- pings

void Connection::SendPing(uint8_t kind) noexcept {
  const std::array<uint8_t, 8> opaque = {kind};
  Check(nghttp2_submit_ping(session_.get(), NGHTTP2_FLAG_NONE, opaque.data()));
}

void Connection::Ping() noexcept {
  if (!ended_) SendPing(kUserPing);
}

void Connection::OnPingAck(uint8_t kind) noexcept {
  if (kind == kKeepalivePing) {
    ping_open_ = false;
  } else if (kind == kDrainPing) {
    if (draining_) SendLastGoaway();
  } else if (kind == kUserPing) {
    listener_.OnPong(*this);
  }
}

// ---- times

void Connection::Keepalive(Clock::time_point now) noexcept {
  if (settings_.keepalive_time.count() == 0 || !ready_) return;
  if (ping_open_) {
    if (now - ping_sent_ >= settings_.keepalive_timeout) {
      EndFor(EndCause::kSilence, absl::UnavailableError("keepalive: the peer does not answer"));
    }
    return;
  }
  if (!settings_.keepalive_without_streams && stream_count_ == 0) return;
  if (now - last_read_ < settings_.keepalive_time) return;
  ping_open_ = true;
  ping_sent_ = now;
  SendPing(kKeepalivePing);
}

void Connection::OnTime() noexcept {
  if (ended_) return;
  try {
    const Clock::time_point now = loop_.now();
    const auto passed = [now](milliseconds time, Clock::time_point since) {
      return time.count() > 0 && now - since >= time;
    };
    if (terminating_) {
      if (passed(kLastWordsTime, terminate_began_)) return End(reason_);
    } else if (!ready_ && passed(settings_.handshake_time, born_)) {
      return EndFor(EndCause::kHandshake,
                    absl::UnavailableError("the peer's handshake takes too long"));
    }
    if (barred_ && passed(settings_.handshake_time, barred_since_)) LeaveBarred();
    const milliseconds stall = stream_count_ > 0
                                   ? settings_.write_stall_time
                                   : std::min(settings_.write_stall_time, kStallWithoutStreams);
    if (write_blocked_ && passed(stall, last_write_)) {
      return EndFor(EndCause::kStall, absl::UnavailableError("the peer does not read"));
    }
    if (passed(settings_.max_age, born_)) {
      NoteCause(EndCause::kAge);
      Shutdown();
      if (passed(2 * settings_.max_age, born_)) {
        return End(absl::UnavailableError("the connection has reached its greatest age"));
      }
    }
    if (stream_count_ == 0 && passed(settings_.idle_time, last_stream_)) {
      NoteCause(EndCause::kIdle);
      Shutdown();
    }
    if (awaits_last_goaway() && passed(kDrainTime, drain_began_)) SendLastGoaway();
    Keepalive(now);
  } catch (const std::bad_alloc&) {
    return EndOutOfMemory();
  }
  if (!ended_) ScheduleTimer();
}

// OnTime() checks the times themselves; times that only move later are not rescheduled.
void Connection::ScheduleTimer() noexcept {
  if (ended_) return;
  const Clock::time_point now = loop_.now();
  Clock::time_point next = now + std::chrono::hours(1);
  const auto at = [&](milliseconds time, Clock::time_point since) {
    if (time.count() > 0) next = std::min(next, std::max(since + time, now + kShortestWait));
  };
  if (terminating_) at(kLastWordsTime, terminate_began_);
  if (!ready_) at(settings_.handshake_time, born_);
  if (barred_) at(settings_.handshake_time, barred_since_);
  if (write_blocked_) {
    at(stream_count_ > 0 ? settings_.write_stall_time
                         : std::min(settings_.write_stall_time, kStallWithoutStreams),
       last_write_);
  }
  at(draining_ ? 2 * settings_.max_age : settings_.max_age, born_);
  if (stream_count_ == 0 && !draining_) at(settings_.idle_time, last_stream_);
  if (awaits_last_goaway()) at(kDrainTime, drain_began_);
  if (ready_ && settings_.keepalive_time.count() > 0) {
    if (ping_open_) {
      at(settings_.keepalive_timeout, ping_sent_);
    } else {
      // After a period of silence the next check is a full period later.
      const Clock::time_point since =
          now - last_read_ < settings_.keepalive_time ? last_read_ : now;
      at(settings_.keepalive_time, since);
    }
  }
  loop_.Schedule(timer_, next);
}

}  // namespace cbt::rpc::http2

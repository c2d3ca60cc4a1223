// The limits of an HTTP/2 connection: its settings, what its peer may cause, and its times.
#ifndef CBT_RPC_HTTP2_CONNECTION_LIMITS_H_
#define CBT_RPC_HTTP2_CONNECTION_LIMITS_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "cbt/units.h"
#include "net/event_loop.h"

namespace cbt::rpc::http2 {

// The allowed events: `burst` at once, and `per_second` in the long run.
struct RateLimit {
  double burst = 0;
  double per_second = 0;
};

struct PeerLimits {
  // Streams that the peer resets, or makes us reset by breaking rules.
  RateLimit resets = {200, 100};
  // Frames that cause work but carry nothing: SETTINGS, PRIORITY, empty DATA, unknown ones.
  RateLimit empty_frames = {1000, 200};
  // WINDOW_UPDATE and PING of clients, beside those that they earn: kFramesAKib for each KiB that
  // is sent to them, since they acknowledge what they read, and as many for each request;
  // kFramesAFrame for each frame, since grpc-go may answer the smallest with a ping.
  RateLimit upkeep_frames = {1000, 200};
  static constexpr double kFramesAKib = 4;
  static constexpr double kFramesAFrame = 2;
  // The least time between pings, with two extra ones; 0: no limit. Counting restarts whenever
  // headers or data are sent to the peer, because gRPC's clients measure bandwidth with pings.
  std::chrono::milliseconds min_ping{0};
  // Frames that wait in the session because the peer does not read, in addition to two per stream.
  size_t waiting_frames = 1000;
};

// Not thread safe.
class RateCounter {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns false if that exceeds the limit.
  bool Count(const RateLimit& limit, Clock::time_point now) noexcept {
    Elapse(limit, now);
    used_ += 1;
    return used_ <= limit.burst;
  }

  // Whether `events` more would stay within the limit.
  bool Allows(size_t events, const RateLimit& limit, Clock::time_point now) noexcept {
    Elapse(limit, now);
    return used_ + static_cast<double>(events) <= limit.burst;
  }

  // Allows `events` more.
  void Forgive(double events) noexcept { used_ = std::max(0.0, used_ - events); }

 private:
  void Elapse(const RateLimit& limit, Clock::time_point now) noexcept {
    if (last_ != Clock::time_point{}) {
      const std::chrono::duration<double> passed = now - last_;
      used_ = std::max(0.0, used_ - passed.count() * limit.per_second);
    }
    last_ = now;
  }

  double used_ = 0;
  Clock::time_point last_;
};

class PeerGuard {
 public:
  using Clock = RateCounter::Clock;

  explicit PeerGuard(const PeerLimits& limits) noexcept : limits_(limits) {}

  // Each returns false if that exceeds the limit.
  bool CountReset(Clock::time_point now) noexcept { return resets_.Count(limits_.resets, now); }
  bool CountEmptyFrame(Clock::time_point now) noexcept {
    return empty_frames_.Count(limits_.empty_frames, now);
  }
  bool CountUpkeepFrame(Clock::time_point now) noexcept {
    return upkeep_frames_.Count(limits_.upkeep_frames, now);
  }
  bool CountPing(Clock::time_point now) noexcept {
    constexpr int kStrikes = 2;
    const bool early = last_ping_ != Clock::time_point{} && now - last_ping_ < limits_.min_ping;
    last_ping_ = now;
    return !early || ++strikes_ <= kStrikes;
  }
  bool MayWait(size_t frames, size_t streams) const noexcept {
    return frames <= limits_.waiting_frames + 2 * streams;
  }

  void OnRequest() noexcept { upkeep_frames_.Forgive(PeerLimits::kFramesAKib); }

  // Headers or data of this length were sent to the peer.
  void OnSent(size_t bytes) noexcept {
    strikes_ = 0;
    last_ping_ = {};
    upkeep_frames_.Forgive(PeerLimits::kFramesAFrame +
                           PeerLimits::kFramesAKib * static_cast<double>(bytes) / 1024);
  }

 private:
  const PeerLimits limits_;
  RateCounter resets_;
  RateCounter empty_frames_;
  RateCounter upkeep_frames_;
  Clock::time_point last_ping_;
  int strikes_ = 0;
};

enum class Role { kServer, kClient };

// Totals of all connections since the start. Thread safe.
struct Traffic {
  std::atomic<uint64_t> received{0};  // bytes of HTTP/2, without TLS
  std::atomic<uint64_t> sent{0};
  std::atomic<uint64_t> resets{0};  // streams that peers have reset
};

// Times of 0 are off.
struct ConnectionSettings {
  Role role = Role::kServer;

  // The largest frame that the peer may send, in bytes: 16 KiB to 16 MiB - 1.
  uint32_t max_frame_bytes = 16 * kKiB;
  // How much the peer may send on a stream, and on the connection, before it is consumed.
  uint32_t stream_window_bytes = 64 * kKiB;
  uint32_t connection_window_bytes = kMiB;
  // The connection's window opens on receipt, so that an unread stream does not block others.
  // Otherwise it opens when data is consumed, which bounds the connection's memory.
  bool separate_streams = false;
  // Streams that the peer may have open; servers only.
  uint32_t max_streams = 100;
  // Header fields beyond this many bytes are dropped, see HeaderBlock::cut().
  uint32_t max_header_bytes = 16 * kKiB;
  // What the user of each stream holds, for Connection::memory().
  size_t stream_bytes = 0;

  // For the TLS handshake and the peer's first SETTINGS; and how long a client waits while the
  // server's limit of streams is 0.
  std::chrono::milliseconds handshake_time = std::chrono::seconds(20);
  // After this much silence a ping is sent, which must be answered in time.
  std::chrono::milliseconds keepalive_time{0};
  std::chrono::milliseconds keepalive_timeout = std::chrono::seconds(20);
  bool keepalive_without_streams = true;
  // A connection without streams is shut down after this.
  std::chrono::milliseconds idle_time{0};
  // The connection is shut down at this age, and closed after the same time again.
  std::chrono::milliseconds max_age{0};
  // A peer that reads nothing for this long, although bytes wait for it, is disconnected.
  std::chrono::milliseconds write_stall_time = std::chrono::seconds(80);

  PeerLimits peer = {};

  // Optional counters. Outlive the connection.
  Traffic* traffic = nullptr;
};

// Keeps times and answers questions; the connection acts. Limits that are off never pass. Not
// thread safe; everything is O(1).
class TimeLimits {
 public:
  using Clock = net::EventLoop::Clock;

  // What limits depend on.
  struct State {
    bool ready = false;
    bool terminating = false;
    bool draining = false;
    bool awaits_last_goaway = false;
    bool write_blocked = false;
    size_t streams = 0;
  };

  // `settings` outlives this.
  TimeLimits(const ConnectionSettings& settings, Clock::time_point now) noexcept;

  void NoteRead(Clock::time_point now) noexcept { last_read_ = now; }
  // The peer has accepted data, or nothing waited until now.
  void NoteWrite(Clock::time_point now) noexcept { last_write_ = now; }
  void NoteStreamEnd(Clock::time_point now) noexcept { last_stream_ = now; }
  void NoteDrain(Clock::time_point now) noexcept { drain_began_ = now; }
  void NoteTerminate(Clock::time_point now) noexcept { terminate_began_ = now; }
  // The answer to the ping of Keepalive().
  void NotePong() noexcept { ping_open_ = false; }
  // Clients: whether the server's limit of streams is 0.
  void NoteBarred(bool barred, Clock::time_point now) noexcept;

  // The peer has not read the last frames of a connection that terminates.
  bool LastFramesLate(const State& state, Clock::time_point now) const noexcept;
  bool HandshakeLate(const State& state, Clock::time_point now) const noexcept;
  // The server has taken no streams for too long.
  bool BarredTooLong(Clock::time_point now) const noexcept;
  // The peer does not read, although bytes wait for it.
  bool Stalled(const State& state, Clock::time_point now) const noexcept;
  bool Aged(Clock::time_point now) const noexcept;
  // As long again after Aged().
  bool TooOld(Clock::time_point now) const noexcept;
  bool Idle(const State& state, Clock::time_point now) const noexcept;
  // The peer has had its time to answer the first GOAWAY.
  bool LastGoawayDue(const State& state, Clock::time_point now) const noexcept;

  enum class Silence {
    kNone,
    kPing,    // send a ping now
    kSilent,  // the peer has not answered one
  };
  Silence Keepalive(const State& state, Clock::time_point now) noexcept;

  // When a limit may pass next. Times that only move later are not followed: look, and ask again.
  Clock::time_point Next(const State& state, Clock::time_point now) const noexcept;

 private:
  std::chrono::milliseconds StallTime(const State& state) const noexcept;

  const ConnectionSettings& settings_;
  const Clock::time_point born_;
  Clock::time_point last_read_;
  Clock::time_point last_write_;
  Clock::time_point last_stream_;
  Clock::time_point ping_sent_;
  Clock::time_point drain_began_;
  Clock::time_point terminate_began_;
  Clock::time_point barred_since_;
  bool ping_open_ = false;
  bool barred_ = false;
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_CONNECTION_LIMITS_H_

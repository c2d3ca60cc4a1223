// Counts events that a peer must not cause too often.
#ifndef CBT_RPC_HTTP2_PEER_GUARD_H_
#define CBT_RPC_HTTP2_PEER_GUARD_H_

#include <algorithm>
#include <chrono>
#include <cstddef>

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

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_PEER_GUARD_H_

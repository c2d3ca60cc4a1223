// The wait before the next attempt.
#ifndef CBT_KUBE_WATCH_BACK_OFF_H_
#define CBT_KUBE_WATCH_BACK_OFF_H_

#include <chrono>
#include <cstdint>
#include <random>

#include "cbt/kube/watch.h"

namespace cbt::kube {

// A series of growing waits. Belongs to one thread at a time.
class BackOff {
 public:
  using Clock = std::chrono::steady_clock;

  explicit BackOff(const BackOffOptions& options);
  BackOff(const BackOffOptions& options, uint64_t seed);

  // The next wait: max * (1 + jitter) at most.
  std::chrono::milliseconds Next(Clock::time_point now);

 private:
  BackOffOptions options_;
  std::mt19937_64 random_;
  double next_ms_;
  Clock::time_point last_ = Clock::time_point::min();
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_WATCH_BACK_OFF_H_

// How long to wait before the next attempt. Part of cbt::kube.
#ifndef CBT_KUBE_BACK_OFF_H_
#define CBT_KUBE_BACK_OFF_H_

#include <chrono>
#include <cstdint>
#include <random>

#include "cbt/version.h"

namespace cbt::kube {

struct BackOffOptions {
  std::chrono::milliseconds first = std::chrono::milliseconds(800);  // at least 1 ms
  std::chrono::milliseconds max = std::chrono::seconds(30);
  double factor = 2;
  // A random part of the wait, up to this many times the wait, is added, so that clients do not
  // come back all at once.
  double jitter = 1;
  // The series begins again when the next wait is asked for this long after the last.
  std::chrono::milliseconds reset_after = std::chrono::minutes(2);
};

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

#endif  // CBT_KUBE_BACK_OFF_H_

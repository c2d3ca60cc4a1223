#include "kube/watch/back_off.h"

#include <algorithm>

namespace cbt::kube {

BackOff::BackOff(const BackOffOptions& options) : BackOff(options, std::random_device()()) {}

BackOff::BackOff(const BackOffOptions& options, uint64_t seed) : options_(options), random_(seed) {
  options_.first = std::max(options_.first, std::chrono::milliseconds(1));
  options_.max = std::max(options_.max, options_.first);
  options_.factor = std::max(options_.factor, 1.0);
  options_.jitter = std::max(options_.jitter, 0.0);
  next_ms_ = static_cast<double>(options_.first.count());
}

std::chrono::milliseconds BackOff::Next(Clock::time_point now) {
  if (last_ != Clock::time_point::min() && now - last_ >= options_.reset_after) {
    next_ms_ = static_cast<double>(options_.first.count());
  }
  last_ = now;
  const double wait = next_ms_;
  next_ms_ = std::min(next_ms_ * options_.factor, static_cast<double>(options_.max.count()));
  const double part = std::uniform_real_distribution<double>(0, options_.jitter)(random_);
  return std::chrono::milliseconds(static_cast<int64_t>(wait * (1 + part)));
}

}  // namespace cbt::kube

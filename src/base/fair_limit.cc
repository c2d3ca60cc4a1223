#include "base/fair_limit.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace cbt {
namespace {

// Fractions of a token add up to a little less than it.
constexpr double kWhole = 1 - 1e-6;

}  // namespace

// Under mutex_.
FairLimit::Bucket& FairLimit::Fill(const std::string& user, Clock::time_point now) {
  while (!order_.empty()) {
    const auto oldest = buckets_.find(order_.front());
    if (now - oldest->second.filled < kRemembered && order_.size() < kMaxUsers) break;
    if (oldest->first == user) break;
    buckets_.erase(oldest);
    order_.pop_front();
  }
  const auto [found, is_new] = buckets_.try_emplace(user);
  Bucket& bucket = found->second;
  const double users = static_cast<double>(buckets_.size());
  const double most = std::max(1.0, burst_ / users);
  if (is_new) {
    bucket.tokens = most;
    order_.push_back(user);
    bucket.place = std::prev(order_.end());
  } else {
    const std::chrono::duration<double> passed = now - bucket.filled;
    bucket.tokens = std::min(most, bucket.tokens + passed.count() * qps_ / users);
    order_.splice(order_.end(), order_, bucket.place);
  }
  bucket.filled = now;
  return bucket;
}

std::optional<std::chrono::seconds> FairLimit::Take(const std::string& user,
                                                    Clock::time_point now) {
  if (qps_ <= 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  Bucket& bucket = Fill(user, now);
  if (bucket.tokens >= kWhole) {
    bucket.tokens -= 1;
    return std::nullopt;
  }
  const double wait = std::ceil((1 - bucket.tokens) * static_cast<double>(buckets_.size()) / qps_);
  return std::chrono::seconds(std::clamp<int64_t>(static_cast<int64_t>(wait), 1, 60));
}

void FairLimit::Charge(const std::string& user, Clock::time_point now) {
  if (qps_ <= 0) return;
  const std::lock_guard lock(mutex_);
  Bucket& bucket = Fill(user, now);
  bucket.tokens = std::max(-static_cast<double>(burst_), bucket.tokens - 1);
}

bool FairLimit::IsSpent(const std::string& user, Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  const auto found = buckets_.find(user);
  if (found == buckets_.end()) return false;
  const std::chrono::duration<double> passed = now - found->second.filled;
  const double filled = passed.count() * qps_ / static_cast<double>(buckets_.size());
  return found->second.tokens + filled < kWhole;
}

}  // namespace cbt

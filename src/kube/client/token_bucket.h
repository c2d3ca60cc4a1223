// A limit on how often something is done.
#ifndef CBT_KUBE_CLIENT_TOKEN_BUCKET_H_
#define CBT_KUBE_CLIENT_TOKEN_BUCKET_H_

#include <algorithm>
#include <chrono>

namespace cbt::kube {

// `rate` times a second on average, and `burst` times at once after a pause. Not thread safe.
class TokenBucket {
 public:
  using Clock = std::chrono::steady_clock;

  // rate <= 0: no limit.
  TokenBucket(double rate, int burst, Clock::time_point now)
      : rate_(rate), size_(std::max(burst, 1)), tokens_(size_), at_(now) {}

  // Takes a token if there is one.
  bool Take(Clock::time_point now) noexcept {
    if (rate_ <= 0) return true;
    Fill(now);
    // A token that is there but for rounding is there.
    if (tokens_ < 1 - kRounding) return false;
    tokens_ -= 1;
    return true;
  }

  // When the next token will be there.
  Clock::time_point Next(Clock::time_point now) noexcept {
    if (rate_ <= 0) return now;
    Fill(now);
    if (tokens_ >= 1) return now;
    return now +
           std::chrono::ceil<Clock::duration>(std::chrono::duration<double>((1 - tokens_) / rate_));
  }

 private:
  static constexpr double kRounding = 1e-6;

  void Fill(Clock::time_point now) noexcept {
    const double seconds = std::chrono::duration<double>(now - at_).count();
    if (seconds <= 0) return;
    tokens_ = std::min(size_, tokens_ + seconds * rate_);
    at_ = now;
  }

  const double rate_;
  const double size_;
  double tokens_;
  Clock::time_point at_;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_CLIENT_TOKEN_BUCKET_H_

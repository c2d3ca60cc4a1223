// How many requests a caller may send.
#ifndef CBT_BASE_FAIR_LIMIT_H_
#define CBT_BASE_FAIR_LIMIT_H_

#include <chrono>
#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace cbt {

// A number of requests a second, of which each user that asks gets an equal share: one who sends
// very many is turned away, and the others notice nothing. A token bucket for each user, filled at
// the rate divided by the number of users that were seen in the last seconds. Thread safe.
class FairLimit {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kRemembered{10};
  // Users that are distinguished; beyond that, the one that was silent longest is forgotten.
  static constexpr size_t kMaxUsers = 1024;

  // Zero `qps`: no limit.
  FairLimit(double qps, int burst) : qps_(qps), burst_(burst < 1 ? 1 : burst) {}

  // Nothing: the request may be served. Otherwise how long its user should wait.
  std::optional<std::chrono::seconds> Take(const std::string& user, Clock::time_point now);
  // Whether Take() would turn this user away. For requests that count only if they turn out to be
  // of a kind: ask before, charge after.
  bool IsSpent(const std::string& user, Clock::time_point now) const;
  // Takes what need not be there: requests that were under way together are paid for afterwards.
  void Charge(const std::string& user, Clock::time_point now);
  // Those that are distinguished at the moment.
  size_t users() const {
    const std::lock_guard lock(mutex_);
    return buckets_.size();
  }

 private:
  struct Bucket {
    double tokens = 0;
    Clock::time_point filled;
    std::list<std::string>::iterator place;
  };

  Bucket& Fill(const std::string& user, Clock::time_point now);

  const double qps_;
  const int burst_;
  mutable std::mutex mutex_;
  std::map<std::string, Bucket> buckets_;
  std::list<std::string> order_;  // the one that was silent longest first
};

}  // namespace cbt

#endif  // CBT_BASE_FAIR_LIMIT_H_

// One call at a time for each bucket and each account.
#ifndef CBT_PROGRAMS_COSI_DRIVER_TURNS_H_
#define CBT_PROGRAMS_COSI_DRIVER_TURNS_H_

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::cosi {

// A bucket's policy is replaced as a whole, so two writers would undo each other's accounts. Thread
// safe.
class Turns {
 public:
  explicit Turns(std::chrono::milliseconds longest_wait) : longest_wait_(longest_wait) {}

  // A turn, ended by the destructor. Must not outlive its Turns.
  class Turn {
   public:
    Turn(Turn&& other) noexcept
        : turns_(std::exchange(other.turns_, nullptr)), key_(std::move(other.key_)) {}
    Turn& operator=(Turn&&) = delete;
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      if (turns_ != nullptr) turns_->End(key_);
    }

   private:
    friend class Turns;
    Turn(Turns* turns, std::string key) : turns_(turns), key_(std::move(key)) {}

    Turns* turns_;
    std::string key_;
  };

  // Waits while another has the key's turn. Who takes several keys takes them in their order, an
  // account before buckets. Errors: ABORTED after the longest wait: the caller asks again.
  absl::StatusOr<Turn> Take(const std::string& key) {
    std::unique_lock lock(mutex_);
    if (!ended_.wait_for(lock, longest_wait_, [&] { return !taken_.contains(key); })) {
      return absl::AbortedError("another call is at " + key + " for long");
    }
    taken_.insert(key);
    return Turn(this, key);
  }

 private:
  void End(const std::string& key) {
    const std::lock_guard lock(mutex_);
    taken_.erase(key);
    ended_.notify_all();
  }

  const std::chrono::milliseconds longest_wait_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::set<std::string> taken_;
};

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_DRIVER_TURNS_H_

// Which volumes and names an operation is at.
#ifndef CBT_PROGRAMS_DRIVER_STATE_KEY_LOCKS_H_
#define CBT_PROGRAMS_DRIVER_STATE_KEY_LOCKS_H_

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::driver {

// Locks by key that are never waited for: a client of CSI repeats a call that meets another one, so
// no thread of the server has to wait for a slow disk. Thread safe.
class KeyLocks {
 public:
  // A held lock; the destructor releases it. Must not outlive its KeyLocks.
  class Held {
   public:
    Held() = default;
    Held(Held&& other) noexcept
        : locks_(std::exchange(other.locks_, nullptr)), key_(std::move(other.key_)) {}
    Held& operator=(Held&& other) noexcept {
      std::swap(locks_, other.locks_);
      std::swap(key_, other.key_);
      return *this;
    }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() {
      if (locks_ != nullptr) locks_->Release(key_);
    }

   private:
    friend class KeyLocks;
    explicit Held(std::string key) : key_(std::move(key)) {}

    KeyLocks* locks_ = nullptr;
    std::string key_;
  };

  // Errors: ABORTED if another operation holds the key, or, for TryShared(), holds it alone.
  absl::StatusOr<Held> TryAlone(const std::string& key) {
    Held held(key);  // first: nothing throws once the key is locked
    const std::lock_guard lock(mutex_);
    if (!holders_.try_emplace(key, kAlone).second) return Busy(key);
    held.locks_ = this;
    return held;
  }
  absl::StatusOr<Held> TryShared(const std::string& key) {
    Held held(key);
    const std::lock_guard lock(mutex_);
    int& holders = holders_[key];
    if (holders == kAlone) return Busy(key);
    ++holders;
    held.locks_ = this;
    return held;
  }

 private:
  static constexpr int kAlone = -1;

  static absl::Status Busy(const std::string& key) {
    return absl::AbortedError("another operation is pending for " + key);
  }
  void Release(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = holders_.find(key);
    if (found->second == kAlone || --found->second == 0) holders_.erase(found);
  }

  std::mutex mutex_;
  std::map<std::string, int> holders_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_STATE_KEY_LOCKS_H_

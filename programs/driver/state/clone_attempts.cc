#include "programs/driver/state/clone_attempts.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "programs/driver/state/catalog.h"

namespace cbt::driver {
namespace {

// Goes on while the machine sleeps, when clients don't call either.
std::chrono::nanoseconds SinceBoot() {
  timespec now = {};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace

CloneAttempts::Call::~Call() {
  if (attempts_ == nullptr) return;
  const bool gone = is_gone_();
  const std::lock_guard lock(attempts_->mutex_);
  const auto found = attempts_->attempts_.find(name_);
  if (found == attempts_->attempts_.end()) return;
  found->second.called = false;
  if (!gone) found->second.last_call = SinceBoot();
}

void CloneAttempts::Call::End() { std::exchange(attempts_, nullptr)->End(name_); }

absl::StatusOr<CloneAttempts::Call> CloneAttempts::Join(const std::string& name,
                                                        const std::string& volume, IsGone is_gone) {
  absl::StatusOr<std::string> fresh = RandomId(kPrefix);
  if (!fresh.ok()) return fresh.status();
  const std::lock_guard lock(mutex_);
  Attempt& attempt = attempts_[name];
  if (attempt.volume != volume || IsOld(attempt)) {
    if (!attempt.volume.empty()) suspects_.insert(attempt.volume);
    attempt = {.volume = volume, .snapshot = *std::move(fresh)};
  }
  attempt.called = true;
  attempt.last_call = SinceBoot();
  return Call(this, name, attempt.snapshot, std::move(is_gone));
}

void CloneAttempts::Touch(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = attempts_.find(name);
  if (found != attempts_.end()) found->second.last_call = SinceBoot();
}

bool CloneAttempts::Has(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = attempts_.find(name);
  return found != attempts_.end() && !IsOld(found->second);
}

void CloneAttempts::End(const std::string& name) {
  const std::lock_guard lock(mutex_);
  attempts_.erase(name);
}

bool CloneAttempts::Uses(std::string_view snapshot) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(attempts_.begin(), attempts_.end(),
                     [snapshot](const auto& entry) { return entry.second.snapshot == snapshot; });
}

void CloneAttempts::EndOld() {
  const std::lock_guard lock(mutex_);
  std::erase_if(attempts_, [this](const auto& entry) {
    if (!IsOld(entry.second)) return false;
    suspects_.insert(entry.second.volume);
    return true;
  });
}

void CloneAttempts::EndAllOf(std::string_view volume) {
  const std::lock_guard lock(mutex_);
  std::erase_if(attempts_, [this, volume](const auto& entry) {
    if (entry.second.volume != volume) return false;
    suspects_.insert(entry.second.volume);
    return true;
  });
}

void CloneAttempts::AddSuspect(const std::string& volume) {
  const std::lock_guard lock(mutex_);
  suspects_.insert(volume);
}

void CloneAttempts::RemoveSuspect(const std::string& volume) {
  const std::lock_guard lock(mutex_);
  suspects_.erase(volume);
}

std::set<std::string> CloneAttempts::suspects() const {
  const std::lock_guard lock(mutex_);
  return suspects_;
}

// Requires: mutex_.
bool CloneAttempts::IsOld(const Attempt& attempt) const {
  return !attempt.called && SinceBoot() - attempt.last_call > wait_limit_;
}

}  // namespace cbt::driver

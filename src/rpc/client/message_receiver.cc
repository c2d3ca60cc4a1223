#include "rpc/client/message_receiver.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/units.h"

namespace cbt::rpc {
namespace {

// Limits of what is received ahead of the consumer, not counting one message.
constexpr size_t kAheadBytes = 512 * kKiB;
constexpr size_t kAheadMessages = 64;

}  // namespace

MessageReceiver::MessageReceiver(std::shared_ptr<Channel> channel, Deadline deadline,
                                 std::stop_token stop)
    : channel_(std::move(channel)),
      call_(channel_->NewCall(deadline)),
      // Constructed in place: emplace() would check for an earlier value, which GCC 14 warns about.
      on_stop_(stop.stop_possible()
                   ? OnStop(std::in_place, std::move(stop), [this] { call_->Cancel(); })
                   : OnStop()) {}

MessageReceiver::~MessageReceiver() {
  on_stop_.reset();
  call_->Cancel();
  // Returns at once, whatever the server does; the channel must not be destroyed before.
  if (started_) AwaitEnd();
}

bool MessageReceiver::OnMessage(absl::Cord message) {
  bool wake = false;
  bool go_on = false;
  {
    const std::lock_guard lock(mutex_);
    bytes_ += message.size();
    messages_.push_back(std::move(message));
    wake = waiting_;
    go_on = bytes_ < kAheadBytes && messages_.size() < kAheadMessages;
    paused_ = !go_on;
  }
  if (wake) changed_.notify_one();
  return go_on;
}

void MessageReceiver::OnEnd(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  status_ = status;
  ended_ = true;
  // Under the lock: the waiting thread may destroy this at once.
  changed_.notify_one();
}

absl::StatusOr<std::optional<absl::Cord>> MessageReceiver::Take(StallLimit stall) {
  std::optional<absl::Cord> message;
  bool read_on = false;
  const auto something = [this] { return !messages_.empty() || ended_; };
  {
    std::unique_lock lock(mutex_);
    if (!something()) Wait(lock, something, stall);
    if (!something()) {
      return absl::DeadlineExceededError(
          absl::StrCat("the server sent nothing for ", stall->count(), " ms"));
    }
    if (messages_.empty()) return std::optional<absl::Cord>();
    message = std::move(messages_.front());
    messages_.pop_front();
    bytes_ -= message->size();
    received_ = true;
    // Not after each message.
    read_on = paused_ && bytes_ * 2 <= kAheadBytes && messages_.size() * 2 <= kAheadMessages;
    if (read_on) paused_ = false;
  }
  if (read_on) call_->ReadOn();
  return message;
}

bool MessageReceiver::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

absl::Status MessageReceiver::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

// With the lock, until `done`.
template <typename Done>
void MessageReceiver::Wait(std::unique_lock<std::mutex>& lock, const Done& done, StallLimit limit) {
  using Clock = std::chrono::steady_clock;
  // Later is never, for a clock that would overflow.
  constexpr Clock::duration kLongest = std::chrono::hours(24 * 365);
  const auto until = Clock::now() + (limit.has_value() && *limit < kLongest ? *limit : kLongest);
  waiting_ = true;
  lock.unlock();
  const auto locked_done = [&] {
    const std::lock_guard inner(mutex_);
    return done();
  };
  const bool handled = channel_->HandleEvents(locked_done, until);
  lock.lock();
  if (!handled) changed_.wait_until(lock, until, done);
  waiting_ = false;
}

void MessageReceiver::AwaitEnd() {
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return ended_; };
  if (!ended()) Wait(lock, ended, {});
}

}  // namespace cbt::rpc

#include "rpc/server/stream_registry.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/contract/status.h"

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;

// How long an ended stream may take to send the message in flight. With what the transport takes
// for its last calls and frames, a shutdown ends well within a second after the grace period.
constexpr milliseconds kEndTime{400};

// Places of calls that are not admitted yet, as a multiple of max_streams. A single address can
// have half of them.
constexpr size_t kWaiting = 4;

absl::Status Draining() noexcept {
  return MakeStatusNoThrow(absl::StatusCode::kUnavailable, "the server is shutting down");
}

}  // namespace

StreamRegistry::StreamRegistry(size_t max_streams, milliseconds stall_timeout,
                               milliseconds total_time)
    : max_streams_(max_streams),
      stall_timeout_(stall_timeout),
      total_time_(total_time),
      waiting_(max_streams * kWaiting) {
  watcher_ = std::thread([this] { WatchTimes(); });
}

StreamRegistry::~StreamRegistry() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  watcher_.join();
}

absl::StatusOr<FairPlaces::Place> StreamRegistry::Enter(const std::string& peer) {
  {
    std::lock_guard lock(mutex_);
    if (draining_) return Draining();
  }
  std::optional<FairPlaces::Place> place = waiting_.Take(peer);
  if (place.has_value()) return *std::move(place);
  return absl::ResourceExhaustedError("too many requests wait to be admitted");
}

absl::StatusOr<StreamSlot> StreamRegistry::TakeSlot() {
  std::lock_guard lock(mutex_);
  if (draining_) return Draining();
  // Slots are released without the lock, but taken under it.
  if (slots_->load() >= max_streams_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", max_streams_, " streams that the server allows are in use"));
  }
  ++*slots_;
  return StreamSlot(slots_);
}

absl::Status StreamRegistry::Add(std::shared_ptr<ServedCall> stream) {
  std::lock_guard lock(mutex_);
  if (draining_) return Draining();
  ServedCall* const key = stream.get();
  streams_.emplace(key, std::move(stream));
  return absl::OkStatus();
}

void StreamRegistry::Remove(ServedCall* stream) {
  // Destroyed outside the lock, which releases its slot.
  std::shared_ptr<ServedCall> removed;
  std::lock_guard lock(mutex_);
  if (const auto found = streams_.find(stream); found != streams_.end()) {
    removed = std::move(found->second);
    streams_.erase(found);
  }
  if (streams_.empty()) changed_.notify_all();
}

size_t StreamRegistry::open_streams() const {
  std::lock_guard lock(mutex_);
  return streams_.size();
}

std::shared_ptr<ServedCall> StreamRegistry::NextOpen(const ServedCall* stream) const {
  std::lock_guard lock(mutex_);
  const auto next = streams_.upper_bound(stream);
  return next == streams_.end() ? nullptr : next->second;
}

StreamRegistry::Counts StreamRegistry::Count() const {
  Counts counts;
  ForEachOpen([&counts](const ServedCall& stream) {
    ++counts.open;
    if (stream.Overdue()) ++counts.overdue;
  });
  return counts;
}

void StreamRegistry::StartDrain(milliseconds grace) {
  // Far below the clock's overflow.
  grace = std::clamp(grace, milliseconds{0}, milliseconds{std::chrono::hours{24 * 365}});
  {
    std::lock_guard lock(mutex_);
    const Clock::time_point until = Clock::now() + grace;
    drain_until_ = draining_ ? std::min(drain_until_, until) : until;
    draining_ = true;
  }
  changed_.notify_all();
}

bool StreamRegistry::WaitUntilEmpty(milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return streams_.empty(); });
}

void StreamRegistry::FinishDrain() {
  {
    std::unique_lock lock(mutex_);
    while (!streams_.empty() && Clock::now() < drain_until_) {
      changed_.wait_until(lock, Clock::time_point(drain_until_));
    }
  }
  ForEachOpen([](ServedCall& stream) {
    stream.NoteReason(EndReason::kDrained);
    stream.End(Draining());
  });
  if (WaitUntilEmpty(kEndTime)) return;
  ForEachOpen([](ServedCall& stream) { stream.Abort(); });
  WaitUntilEmpty(kAbortTime);
}

void StreamRegistry::WatchTimes() {
  const milliseconds shortest =
      total_time_.count() == 0 ? stall_timeout_ : std::min(stall_timeout_, total_time_);
  const milliseconds interval = std::clamp(shortest / 4, milliseconds{50}, milliseconds{1000});
  std::unique_lock lock(mutex_);
  while (!closing_) {
    changed_.wait_for(lock, interval, [this] { return closing_; });
    lock.unlock();
    ForEachOpen([this](ServedCall& stream) { stream.CheckTimes(stall_timeout_, total_time_); });
    lock.lock();
  }
}

}  // namespace cbt::rpc

// Work that is done ahead by several threads, and used in order by one.
#ifndef CBT_SOURCE_OVERLAY_ORDERED_WORK_H_
#define CBT_SOURCE_OVERLAY_ORDERED_WORK_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/executor.h"

namespace cbt {

// Makes a Result of each Task on an executor, at most `ahead` of them at a time or waiting, and
// hands the results back in the order of the tasks. The calling thread takes part: nothing waits
// for a task of the executor that has not started. Belongs to one thread, `make` runs in any.
template <typename Task, typename Result>
class OrderedWork {
 public:
  using Make = std::function<absl::StatusOr<Result>(const Task&)>;

  // Without an executor, Take() does the work.
  OrderedWork(Executor* executor, size_t ahead, Make make)
      : executor_(executor), ahead_(ahead), shared_(std::make_shared<Shared>(std::move(make))) {}
  OrderedWork(const OrderedWork&) = delete;
  OrderedWork& operator=(const OrderedWork&) = delete;

  // Drops what has not begun, and waits for what has: `make` does not run afterwards.
  ~OrderedWork() {
    std::unique_lock lock(shared_->mutex);
    for (const auto& slot : slots_) {
      if (slot->state == State::kWaiting) slot->state = State::kDone;
      while (slot->state != State::kDone) shared_->changed.wait(lock);
    }
  }

  bool full() const noexcept { return slots_.size() >= ahead_; }
  bool empty() const noexcept { return slots_.empty(); }

  // Requires: not full().
  void Add(Task task) {
    const auto slot = std::make_shared<Slot>(std::move(task));
    slots_.push_back(slot);
    if (executor_ == nullptr) return;
    try {
      executor_->Schedule([shared = shared_, slot] { Run(*shared, *slot); });
    } catch (const std::exception&) {
      // Take() does it.
    }
  }

  // The result of the oldest task. Requires: not empty().
  absl::StatusOr<Result> Take() {
    const std::shared_ptr<Slot> slot = slots_.front();
    Run(*shared_, *slot);
    std::unique_lock lock(shared_->mutex);
    while (slot->state != State::kDone) shared_->changed.wait(lock);
    slots_.pop_front();
    return std::move(slot->result);
  }

 private:
  enum class State : unsigned char { kWaiting, kRunning, kDone };
  struct Slot {
    explicit Slot(Task t) : task(std::move(t)) {}
    const Task task;
    State state = State::kWaiting;
    absl::StatusOr<Result> result = absl::CancelledError("was not done");
  };
  struct Shared {
    explicit Shared(Make m) : make(std::move(m)) {}
    const Make make;
    std::mutex mutex;
    std::condition_variable changed;
  };

  // Does the work unless somebody else does or has.
  static void Run(Shared& shared, Slot& slot) noexcept {
    {
      const std::lock_guard lock(shared.mutex);
      if (slot.state != State::kWaiting) return;
      slot.state = State::kRunning;
    }
    absl::StatusOr<Result> result = absl::ResourceExhaustedError("");  // for want of memory
    try {
      result = shared.make(slot.task);
    } catch (const std::exception&) {
      // No memory, not even for a text.
    }
    const std::lock_guard lock(shared.mutex);
    slot.result = std::move(result);
    slot.state = State::kDone;
    shared.changed.notify_all();
  }

  Executor* const executor_;
  const size_t ahead_;
  const std::shared_ptr<Shared> shared_;
  std::deque<std::shared_ptr<Slot>> slots_;
};

}  // namespace cbt

#endif  // CBT_SOURCE_OVERLAY_ORDERED_WORK_H_

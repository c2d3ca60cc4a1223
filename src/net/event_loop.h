// A thread's events: descriptors, timers, and tasks from other threads.
#ifndef CBT_NET_EVENT_LOOP_H_
#define CBT_NET_EVENT_LOOP_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace cbt::net {

class EventLoop;

// Work for a loop. Queued at most once at a time; must not be destroyed while queued.
class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // Runs in the loop. May queue the task again, or destroy it.
  virtual void Run() noexcept = 0;

 protected:
  ~Task() = default;

 private:
  friend class EventLoop;
  friend class TaskList;
  std::atomic<bool> queued_{false};
  Task* next_ = nullptr;
  Task* previous_ = nullptr;
};

// A task that calls a member function of its owner.
template <typename Owner, void (Owner::*kRun)() noexcept>
class MemberTask final : public Task {
 public:
  explicit MemberTask(Owner& owner) noexcept : owner_(owner) {}
  void Run() noexcept override { (owner_.*kRun)(); }

 private:
  Owner& owner_;
};

// An intrusive queue of tasks.
class TaskList {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  void PushBack(Task& task) noexcept;
  // Null if empty.
  Task* PopFront() noexcept;
  void Remove(Task& task) noexcept;
  // Moves all of `other` to the end.
  void Append(TaskList& other) noexcept;
  bool Contains(const Task& task) const noexcept;

 private:
  Task* first_ = nullptr;
  Task* last_ = nullptr;
};

// Fires at a time. Must not be destroyed while scheduled. For the loop's thread.
class Timer {
 public:
  using Clock = std::chrono::steady_clock;

  Timer() = default;
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Runs in the loop, at or after the scheduled time. May reschedule the timer, or destroy it.
  virtual void OnTime() noexcept = 0;

  bool scheduled() const noexcept { return scheduled_; }

 protected:
  ~Timer() = default;

 private:
  friend class TimerHeap;
  Clock::time_point at_;
  bool scheduled_ = false;
  Timer* child_ = nullptr;
  Timer* next_ = nullptr;
  Timer* previous_ = nullptr;  // the parent, for a first child
};

// A timer that calls a member function of its owner.
template <typename Owner, void (Owner::*kOnTime)() noexcept>
class MemberTimer final : public Timer {
 public:
  explicit MemberTimer(Owner& owner) noexcept : owner_(owner) {}
  void OnTime() noexcept override { (owner_.*kOnTime)(); }

 private:
  Owner& owner_;
};

// Timers by time: an intrusive pairing heap, so that nothing is allocated. Insert O(1), others
// O(log n) amortised.
class TimerHeap {
 public:
  Timer* first() const noexcept { return root_; }
  static Timer::Clock::time_point TimeOf(const Timer& timer) noexcept { return timer.at_; }
  void Insert(Timer& timer, Timer::Clock::time_point at) noexcept;
  void Remove(Timer& timer) noexcept;

 private:
  static Timer* Merge(Timer* a, Timer* b) noexcept;
  static Timer* MergeChildren(Timer& parent) noexcept;

  Timer* root_ = nullptr;
};

// A descriptor that the loop watches. Remove it from the loop before destruction.
class Watch {
 public:
  Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Runs in the loop. `events`: EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP. Repeats as long as they
  // hold.
  virtual void OnReady(uint32_t events) noexcept = 0;

 protected:
  ~Watch() = default;
};

// Runs in one thread at a time. Unless noted, functions are called in that thread, or while no
// thread runs the loop.
class EventLoop {
 public:
  using Clock = Timer::Clock;

  // UNAVAILABLE if the system refuses descriptors; RESOURCE_EXHAUSTED without memory.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();

  // No thread may run it. Queued tasks are dropped.
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Handles events until Stop(); tasks posted before Stop() have run when it returns.
  void Run() noexcept;

  // Handles ready events, waiting at most `timeout` for them; negative: forever. Returns false if
  // there were only timers.
  bool RunOnce(std::chrono::milliseconds timeout) noexcept;

  // Ends Run(), even one that begins later. From any thread.
  void Stop() noexcept;

  // Whether this thread is running the loop. From any thread.
  bool IsInLoop() const noexcept;

  // Queues `task` unless it is queued. From any thread; allocates nothing.
  void Post(Task& task) noexcept;

  // Queues `task` for the end of this turn: after events, timers and posted tasks.
  void Defer(Task& task) noexcept;

  // Removes `task` from the queues. No other thread may be posting it.
  void Cancel(Task& task) noexcept;

  void Schedule(Timer& timer, Clock::time_point at) noexcept;
  void Cancel(Timer& timer) noexcept;

  // Watches `fd` for `events` (EPOLLIN, EPOLLOUT). UNAVAILABLE if the system refuses.
  absl::Status Add(int fd, uint32_t events, Watch& watch) noexcept;
  void Change(int fd, uint32_t events, Watch& watch) noexcept;
  // Call before closing `fd`. No further events follow.
  void Remove(int fd, Watch& watch) noexcept;

  // The time of this turn, read when its events arrived.
  Clock::time_point now() const noexcept { return now_; }

 private:
  static constexpr int kBatch = 64;
  struct Batch;
  // Marks in a list where this turn ends.
  class Mark final : public Task {
    void Run() noexcept override {}
  };

  EventLoop(OwnedDescriptor epoll, OwnedDescriptor wake, std::unique_ptr<Batch> batch) noexcept;
  int WaitTime(std::chrono::milliseconds timeout) const noexcept;
  void Wait(std::chrono::milliseconds timeout) noexcept;
  void RunTimers() noexcept;
  void TakePosted() noexcept;
  void RunAll(TaskList& list) noexcept;

  const OwnedDescriptor epoll_;
  const OwnedDescriptor wake_;
  const std::unique_ptr<Batch> batch_;
  std::atomic<Task*> posted_{nullptr};  // last one first
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> stopped_{false};
  TaskList ready_;
  TaskList deferred_;
  Mark mark_;
  TimerHeap timers_;
  Clock::time_point now_;
};

}  // namespace cbt::net

#endif  // CBT_NET_EVENT_LOOP_H_

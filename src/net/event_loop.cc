#include "net/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::net {
namespace {

using std::chrono::milliseconds;

// The loop that this thread runs.
thread_local const EventLoop* current_loop = nullptr;

absl::Status SystemError(const char* what, int error) noexcept {
  try {
    return absl::UnavailableError(absl::StrCat(what, ": ", ErrnoText(error)));
  } catch (const std::bad_alloc&) {
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
}

}  // namespace

// ---- tasks

void TaskList::PushBack(Task& task) noexcept {
  task.next_ = nullptr;
  task.previous_ = last_;
  (last_ != nullptr ? last_->next_ : first_) = &task;
  last_ = &task;
}

Task* TaskList::PopFront() noexcept {
  Task* const task = first_;
  if (task != nullptr) Remove(*task);
  return task;
}

void TaskList::Remove(Task& task) noexcept {
  (task.previous_ != nullptr ? task.previous_->next_ : first_) = task.next_;
  (task.next_ != nullptr ? task.next_->previous_ : last_) = task.previous_;
  task.next_ = task.previous_ = nullptr;
}

void TaskList::Append(TaskList& other) noexcept {
  if (other.empty()) return;
  (last_ != nullptr ? last_->next_ : first_) = other.first_;
  other.first_->previous_ = last_;
  last_ = other.last_;
  other.first_ = other.last_ = nullptr;
}

bool TaskList::Contains(const Task& task) const noexcept {
  for (const Task* at = first_; at != nullptr; at = at->next_) {
    if (at == &task) return true;
  }
  return false;
}

// ---- timers

Timer* TimerHeap::Merge(Timer* a, Timer* b) noexcept {
  if (a == nullptr) return b;
  if (b == nullptr) return a;
  if (b->at_ < a->at_) std::swap(a, b);
  b->previous_ = a;
  b->next_ = a->child_;
  if (a->child_ != nullptr) a->child_->previous_ = b;
  a->child_ = b;
  return a;
}

// Pairs from left to right, then merges from right to left; this makes it O(log n).
Timer* TimerHeap::MergeChildren(Timer& parent) noexcept {
  Timer* at = std::exchange(parent.child_, nullptr);
  Timer* pairs = nullptr;
  while (at != nullptr) {
    Timer* const a = at;
    Timer* const b = a->next_;
    at = b != nullptr ? b->next_ : nullptr;
    a->next_ = a->previous_ = nullptr;
    if (b != nullptr) b->next_ = b->previous_ = nullptr;
    Timer* const pair = Merge(a, b);
    pair->next_ = pairs;
    pairs = pair;
  }
  Timer* root = nullptr;
  while (pairs != nullptr) {
    Timer* const pair = pairs;
    pairs = std::exchange(pair->next_, nullptr);
    root = Merge(root, pair);
  }
  return root;
}

void TimerHeap::Insert(Timer& timer, Timer::Clock::time_point at) noexcept {
  timer.at_ = at;
  timer.scheduled_ = true;
  root_ = Merge(root_, &timer);
}

void TimerHeap::Remove(Timer& timer) noexcept {
  timer.scheduled_ = false;
  Timer* const children = MergeChildren(timer);
  if (root_ == &timer) {
    root_ = children;
    return;
  }
  (timer.previous_->child_ == &timer ? timer.previous_->child_ : timer.previous_->next_) =
      timer.next_;
  if (timer.next_ != nullptr) timer.next_->previous_ = timer.previous_;
  timer.next_ = timer.previous_ = nullptr;
  root_ = Merge(root_, children);
}

// ---- the loop

// The events of one turn.
struct EventLoop::Batch {
  std::array<epoll_event, kBatch> events = {};
  int count = 0;
};

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  OwnedDescriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.has_value()) return SystemError("epoll", errno);
  OwnedDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.has_value()) return SystemError("eventfd", errno);
  epoll_event event = {};
  event.events = EPOLLIN;
  if (epoll_ctl(epoll.number(), EPOLL_CTL_ADD, wake.number(), &event) != 0) {
    return SystemError("epoll", errno);
  }
  try {
    return std::unique_ptr<EventLoop>(
        new EventLoop(std::move(epoll), std::move(wake), std::make_unique<Batch>()));
  } catch (const std::bad_alloc&) {
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
}

EventLoop::EventLoop(OwnedDescriptor epoll, OwnedDescriptor wake,
                     std::unique_ptr<Batch> batch) noexcept
    : epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      batch_(std::move(batch)),
      now_(Clock::now()) {}

EventLoop::~EventLoop() = default;

void EventLoop::Run() noexcept {
  while (!stopped_.load(std::memory_order_acquire)) RunOnce(milliseconds(-1));
  RunOnce(milliseconds(0));
}

bool EventLoop::RunOnce(milliseconds timeout) noexcept {
  const EventLoop* const outer = std::exchange(current_loop, this);
  Wait(timeout);
  // By index, because Remove() deletes events.
  for (int i = 0; i < batch_->count; ++i) {
    const epoll_event& event = batch_->events[static_cast<size_t>(i)];
    if (event.data.ptr != nullptr) {
      static_cast<Watch*>(event.data.ptr)->OnReady(event.events);
    } else {
      // The wake-up, or a deleted event.
      uint64_t count = 0;
      static_cast<void>(!read(wake_.number(), &count, sizeof count));
    }
  }
  bool any = std::exchange(batch_->count, 0) > 0;
  RunTimers();
  TakePosted();
  any = any || !ready_.empty() || !deferred_.empty();
  RunAll(ready_);
  RunAll(deferred_);
  current_loop = outer;
  return any;
}

// Rounded up: a timer that is not due yet must not make the loop spin.
int EventLoop::WaitTime(milliseconds timeout) const noexcept {
  if (!ready_.empty() || !deferred_.empty()) return 0;
  constexpr milliseconds kLongest = std::chrono::hours(1);
  milliseconds wait = timeout < milliseconds(0) ? kLongest : std::min(timeout, kLongest);
  if (timers_.first() != nullptr) {
    const auto left = TimerHeap::TimeOf(*timers_.first()) - Clock::now();
    wait = std::clamp(std::chrono::ceil<milliseconds>(left), milliseconds(0), wait);
  }
  return static_cast<int>(wait.count());
}

void EventLoop::Wait(milliseconds timeout) noexcept {
  int wait = WaitTime(timeout);
  // A post that does not see this flag is found below.
  sleeping_.store(true);
  if (posted_.load() != nullptr || stopped_.load()) wait = 0;
  batch_->count = std::max(0, epoll_wait(epoll_.number(), batch_->events.data(), kBatch, wait));
  sleeping_.store(false);
  now_ = Clock::now();
}

void EventLoop::RunTimers() noexcept {
  while (timers_.first() != nullptr && TimerHeap::TimeOf(*timers_.first()) <= now_) {
    Timer& timer = *timers_.first();
    timers_.Remove(timer);
    timer.OnTime();
  }
}

void EventLoop::TakePosted() noexcept {
  Task* task = posted_.exchange(nullptr);
  Task* in_order = nullptr;
  while (task != nullptr) {
    Task* const next = task->next_;
    task->next_ = in_order;
    in_order = task;
    task = next;
  }
  while (in_order != nullptr) ready_.PushBack(*std::exchange(in_order, in_order->next_));
}

// Tasks queued meanwhile run in the next turn.
void EventLoop::RunAll(TaskList& list) noexcept {
  // A mark, because tasks may also be cancelled meanwhile.
  list.PushBack(mark_);
  while (Task* const task = list.PopFront()) {
    if (task == &mark_) return;
    task->queued_.store(false);
    task->Run();
  }
}

void EventLoop::Stop() noexcept {
  stopped_.store(true);
  if (sleeping_.exchange(false)) {
    const uint64_t one = 1;
    static_cast<void>(!write(wake_.number(), &one, sizeof one));
  }
}

bool EventLoop::IsInLoop() const noexcept { return current_loop == this; }

void EventLoop::Post(Task& task) noexcept {
  if (task.queued_.exchange(true)) return;
  Task* head = posted_.load(std::memory_order_relaxed);
  do {
    task.next_ = head;
  } while (!posted_.compare_exchange_weak(head, &task));
  if (!sleeping_.exchange(false)) return;
  const uint64_t one = 1;
  static_cast<void>(!write(wake_.number(), &one, sizeof one));
}

void EventLoop::Defer(Task& task) noexcept {
  if (!task.queued_.exchange(true)) deferred_.PushBack(task);
}

void EventLoop::Cancel(Task& task) noexcept {
  if (!task.queued_.load()) return;
  TakePosted();
  (deferred_.Contains(task) ? deferred_ : ready_).Remove(task);
  task.queued_.store(false);
}

void EventLoop::Schedule(Timer& timer, Clock::time_point at) noexcept {
  Cancel(timer);
  timers_.Insert(timer, at);
}

void EventLoop::Cancel(Timer& timer) noexcept {
  if (timer.scheduled()) timers_.Remove(timer);
}

absl::Status EventLoop::Add(int fd, uint32_t events, Watch& watch) noexcept {
  epoll_event event = {};
  event.events = events;
  event.data.ptr = &watch;
  if (epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return SystemError("epoll", errno);
}

void EventLoop::Change(int fd, uint32_t events, Watch& watch) noexcept {
  epoll_event event = {};
  event.events = events;
  event.data.ptr = &watch;
  // Cannot fail for a watched descriptor.
  epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::Remove(int fd, Watch& watch) noexcept {
  epoll_event unused = {};
  epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, fd, &unused);
  for (int i = 0; i < batch_->count; ++i) {
    epoll_event& event = batch_->events[static_cast<size_t>(i)];
    if (event.data.ptr == &watch) event.data.ptr = nullptr;
  }
}

}  // namespace cbt::net

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/kube/controller.h"

namespace cbt::kube {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

}  // namespace

struct WorkQueue::State {
  struct Entry {
    bool queued = false;                          // in `due`
    bool working = false;                         // a worker has it
    bool again = false;                           // to be queued when the worker is done
    std::optional<Clock::time_point> later = {};  // in `delayed`
    int retries = 0;
    bool Idle() const { return !queued && !working && !again && !later && retries == 0; }
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  explicit State(const WorkQueueOptions& o)
      : first(std::max(o.first_retry, milliseconds(1))), max(std::max(o.max_retry, first)) {}

  Entries::iterator Ensure(std::string_view key) {
    const auto at = entries.find(key);
    return at != entries.end() ? at : entries.emplace(std::string(key), Entry{}).first;
  }

  void Add(Entries::iterator at) {
    Entry& entry = at->second;
    DropDelay(at);
    if (entry.queued) return;
    if (entry.working) {
      entry.again = true;
      return;
    }
    due.push_back(at->first);
    entry.queued = true;
    changed.notify_one();
  }

  void AddAt(Entries::iterator at, Clock::time_point time) {
    Entry& entry = at->second;
    // It comes sooner anyway.
    if (entry.queued || entry.again || (entry.later.has_value() && *entry.later <= time)) return;
    DropDelay(at);
    delayed.emplace(time, at->first);
    entry.later = time;
    // Someone may be waiting for a later time.
    changed.notify_one();
  }

  void DropDelay(Entries::iterator at) {
    if (!at->second.later.has_value()) return;
    delayed.erase({*at->second.later, at->first});
    at->second.later.reset();
  }

  void MoveDue(Clock::time_point now) {
    while (!delayed.empty() && delayed.begin()->first <= now) {
      Add(entries.find(delayed.begin()->second));
    }
  }

  Clock::time_point RetryTime(Entry& entry) {
    milliseconds wait = first;
    for (int i = 0; i < entry.retries && wait < max; ++i) wait *= 2;
    ++entry.retries;
    return Clock::now() + std::min(wait, max);
  }

  void Finish(const std::string& key, bool succeeded, bool retry) {
    std::lock_guard lock(mutex);
    const auto at = entries.find(key);
    Entry& entry = at->second;
    entry.working = false;
    --working;
    if (succeeded) entry.retries = 0;
    if (std::exchange(entry.again, false)) {
      // Queued also after ShutDown(): what changed while it was worked on was accepted before.
      Add(at);
    } else if (retry && !closed) {
      AddAt(at, RetryTime(entry));
    }
    if (entry.Idle()) entries.erase(at);
    if (closed) changed.notify_all();
  }

  bool Drained() const { return due.empty() && working == 0; }

  const milliseconds first;
  const milliseconds max;

  std::mutex mutex;
  std::condition_variable changed;
  Entries entries;
  std::deque<std::string> due;
  std::set<std::pair<Clock::time_point, std::string>> delayed;
  size_t working = 0;
  bool closed = false;
};

WorkQueue::Item::Item(Item&& other) noexcept
    : queue_(std::exchange(other.queue_, nullptr)), key_(std::move(other.key_)) {}

WorkQueue::Item& WorkQueue::Item::operator=(Item&& other) noexcept {
  if (this == &other) return *this;
  Done();
  queue_ = std::exchange(other.queue_, nullptr);
  key_ = std::move(other.key_);
  return *this;
}

WorkQueue::Item::~Item() { Done(); }

void WorkQueue::Item::Succeed() {
  if (queue_ != nullptr) std::exchange(queue_, nullptr)->state_->Finish(key_, true, false);
}

void WorkQueue::Item::Retry() {
  if (queue_ != nullptr) std::exchange(queue_, nullptr)->state_->Finish(key_, false, true);
}

void WorkQueue::Item::Done() {
  if (queue_ != nullptr) std::exchange(queue_, nullptr)->state_->Finish(key_, false, false);
}

WorkQueue::WorkQueue(const WorkQueueOptions& options) : state_(std::make_unique<State>(options)) {}

WorkQueue::~WorkQueue() = default;

void WorkQueue::Add(std::string_view key) {
  std::lock_guard lock(state_->mutex);
  if (!state_->closed) state_->Add(state_->Ensure(key));
}

void WorkQueue::AddAfter(std::string_view key, milliseconds delay) {
  std::lock_guard lock(state_->mutex);
  if (state_->closed) return;
  const auto at = state_->Ensure(key);
  if (delay <= milliseconds(0)) {
    state_->Add(at);
  } else {
    state_->AddAt(at, Clock::now() + delay);
  }
}

void WorkQueue::Retry(std::string_view key) {
  std::lock_guard lock(state_->mutex);
  if (state_->closed) return;
  const auto at = state_->Ensure(key);
  state_->AddAt(at, state_->RetryTime(at->second));
}

void WorkQueue::Forget(std::string_view key) {
  std::lock_guard lock(state_->mutex);
  const auto at = state_->entries.find(key);
  if (at == state_->entries.end()) return;
  at->second.retries = 0;
  if (at->second.Idle()) state_->entries.erase(at);
}

int WorkQueue::Retries(std::string_view key) const {
  std::lock_guard lock(state_->mutex);
  const auto at = state_->entries.find(key);
  return at == state_->entries.end() ? 0 : at->second.retries;
}

std::optional<WorkQueue::Item> WorkQueue::Get(std::optional<milliseconds> timeout) {
  std::optional<Clock::time_point> until;
  if (timeout.has_value()) until = Clock::now() + *timeout;
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  for (;;) {
    const Clock::time_point now = Clock::now();
    state.MoveDue(now);
    if (!state.due.empty()) {
      std::string key = std::move(state.due.front());
      state.due.pop_front();
      State::Entry& entry = state.entries.find(key)->second;
      entry.queued = false;
      entry.working = true;
      ++state.working;
      // This worker may have been the one that waited for the next delayed key.
      if (!state.delayed.empty()) state.changed.notify_one();
      return Item(*this, std::move(key));
    }
    // A key that a worker has may still come again.
    if (state.closed && state.Drained()) return std::nullopt;
    if (until.has_value() && now >= *until) return std::nullopt;
    std::optional<Clock::time_point> next = until;
    if (!state.delayed.empty() && (!next.has_value() || state.delayed.begin()->first < *next)) {
      next = state.delayed.begin()->first;
    }
    if (next.has_value()) {
      state.changed.wait_until(lock, *next);
    } else {
      state.changed.wait(lock);
    }
  }
}

void WorkQueue::ShutDown() {
  std::lock_guard lock(state_->mutex);
  state_->closed = true;
  for (const auto& [time, key] : state_->delayed) {
    const auto at = state_->entries.find(key);
    at->second.later.reset();
    if (!at->second.queued && !at->second.working) state_->entries.erase(at);
  }
  state_->delayed.clear();
  state_->changed.notify_all();
}

bool WorkQueue::ShutDownAndDrain(milliseconds timeout) {
  ShutDown();
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, timeout, [this] { return state_->Drained(); });
}

bool WorkQueue::shut_down() const {
  std::lock_guard lock(state_->mutex);
  return state_->closed;
}

size_t WorkQueue::size() const {
  std::lock_guard lock(state_->mutex);
  state_->MoveDue(Clock::now());
  return state_->due.size();
}

Workers::Workers(WorkQueue& queue, size_t threads, Reconcile reconcile,
                 std::function<void(const std::string& key, const absl::Status& error)> on_error)
    : queue_(queue) {
  const auto work = [&queue, reconcile = std::move(reconcile), on_error = std::move(on_error)] {
    while (std::optional<WorkQueue::Item> item = queue.Get()) {
      absl::Status status;
      try {
        status = reconcile(item->key());
      } catch (const std::exception& error) {
        status = absl::UnknownError(absl::StrCat("exception: ", error.what()));
      } catch (...) {
        status = absl::UnknownError("exception");
      }
      const std::string key = item->key();
      if (status.ok()) {
        item->Succeed();
      } else {
        item->Retry();
        if (on_error) on_error(key, status);
      }
    }
  };
  threads_.reserve(threads);
  try {
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back(work);
  } catch (...) {
    queue_.ShutDown();
    for (std::thread& thread : threads_) thread.join();
    throw;
  }
}

Workers::~Workers() {
  queue_.ShutDown();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace cbt::kube

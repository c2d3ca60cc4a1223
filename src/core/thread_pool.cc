#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cbt/executor.h"

namespace cbt {

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::function<void()>> tasks;
  bool closing = false;
  std::vector<std::thread> threads;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  // Not in the pool's destructor, which does not run if the constructor fails to create all
  // threads; an unjoined thread would terminate the process.
  ~State() {
    {
      std::lock_guard lock(mutex);
      closing = true;
    }
    wake.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  void Run() {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [this] { return closing || !tasks.empty(); });
      if (tasks.empty()) return;
      std::function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      // Destroy what the task owns outside the lock too.
      task = nullptr;
      lock.lock();
    }
  }
};

ThreadPool::ThreadPool(size_t threads) : state_(std::make_unique<State>()) {
  if (threads == 0) threads = 1;
  state_->threads.reserve(threads);
  for (size_t i = 0; i < threads; ++i) {
    state_->threads.emplace_back([state = state_.get()] { state->Run(); });
  }
}

ThreadPool::~ThreadPool() = default;

void ThreadPool::Schedule(std::function<void()> task) {
  {
    std::lock_guard lock(state_->mutex);
    state_->tasks.push_back(std::move(task));
  }
  state_->wake.notify_one();
}

}  // namespace cbt

// Runs work that may block, such as reading images and querying storage systems.
#ifndef CBT_EXECUTOR_H_
#define CBT_EXECUTOR_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "cbt/version.h"

namespace cbt {

// Runs tasks on its own threads. Thread-safe.
class Executor {
 public:
  virtual ~Executor() = default;

  // Runs `task` later, never inside this call. Tasks may start in any order and must not throw. If
  // this throws (out of memory, for example), the task does not run.
  virtual void Schedule(std::function<void()> task) = 0;
};

// A fixed number of threads that run tasks in FIFO order. The destructor runs what is still queued,
// then joins. The queue is unbounded: callers in this library queue at most a few tasks per open
// stream.
class ThreadPool final : public Executor {
 public:
  // `threads` >= 1. Throws std::system_error or std::bad_alloc if they can't be created.
  explicit ThreadPool(size_t threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void Schedule(std::function<void()> task) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cbt

#endif  // CBT_EXECUTOR_H_

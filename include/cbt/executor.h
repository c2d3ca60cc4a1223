// Where work runs that may block: reading images, asking storage systems.
#ifndef CBT_EXECUTOR_H_
#define CBT_EXECUTOR_H_

#include <cstddef>
#include <functional>
#include <memory>

namespace cbt {

// Runs tasks on threads of its own. Implementations are safe to call from any thread.
class Executor {
 public:
  virtual ~Executor() = default;

  // Runs `task` later, never inside this call. Tasks may start in any order and must not throw. If
  // this throws, as for want of memory, the task is not run.
  virtual void Schedule(std::function<void()> task) = 0;
};

// A fixed number of threads that take tasks in the order they came. The destructor runs what is
// still queued, then joins. The queue has no bound of its own: callers in this library queue at
// most a few tasks for each open stream.
class ThreadPool final : public Executor {
 public:
  // `threads` >= 1. Throws std::system_error or std::bad_alloc when they can't be had.
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

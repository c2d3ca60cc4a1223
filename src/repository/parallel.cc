#include "repository/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "cbt/executor.h"

namespace cbt::repository {

absl::Status ParallelFor(size_t count, size_t threads, const std::stop_token& stop,
                         const std::function<absl::Status(size_t)>& step) {
  // Created while memory is available.
  const absl::Status out_of_memory = absl::ResourceExhaustedError("out of memory");
  const absl::Status cancelled = absl::CancelledError("was cancelled");
  std::atomic<size_t> next = 0;
  std::atomic<bool> ended = false;
  std::mutex mutex;
  absl::Status failure;
  size_t failed_at = count;
  const auto run = [&] {
    while (!ended.load(std::memory_order_relaxed)) {
      const size_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= count) return;
      absl::Status status;
      try {
        status = stop.stop_requested() ? cancelled : step(i);
      } catch (const std::exception&) {
        status = out_of_memory;
      }
      if (status.ok()) continue;
      ended.store(true, std::memory_order_relaxed);
      const std::lock_guard lock(mutex);
      if (i < failed_at) {
        failed_at = i;
        failure = std::move(status);
      }
    }
  };
  const size_t used = std::min(threads, count);
  if (used <= 1) {
    run();
  } else {
    ThreadPool pool(used);
    for (size_t i = 0; i < used; ++i) pool.Schedule(run);
    // The destructor waits.
  }
  return failure;
}

}  // namespace cbt::repository

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "cbt/executor.h"

namespace cbt {
namespace {

TEST(ThreadPoolTest, RunsEveryTaskBeforeItDies) {
  std::atomic<int> runs{0};
  {
    ThreadPool pool(3);
    for (int i = 0; i < 1000; ++i) {
      pool.Schedule([&] {
        // A task may schedule another one.
        if (runs++ % 10 == 0) pool.Schedule([&] { ++runs; });
      });
    }
  }
  EXPECT_GT(runs.load(), 1000);
}

TEST(ThreadPoolTest, RunsTasksAtTheSameTime) {
  ThreadPool pool(2);
  std::mutex mutex;
  std::condition_variable changed;
  int arrived = 0;
  // Neither of the two can finish without the other.
  for (int i = 0; i < 2; ++i) {
    pool.Schedule([&] {
      std::unique_lock lock(mutex);
      ++arrived;
      changed.notify_all();
      changed.wait(lock, [&] { return arrived >= 2; });
    });
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return arrived >= 2; });
}

}  // namespace
}  // namespace cbt

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>

#include "cbt/executor.h"
#include "cbt/units.h"

namespace cbt {
namespace thread_pool_test {

TEST(ThreadPoolTest, RunsEveryTaskBeforeItDies) {
  std::atomic<int> runs{0};
  {
    ThreadPool pool(3);
    for (int i = 0; i < 1000; ++i) {
      pool.Schedule([&] {
        // A task may schedule another.
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
  // Neither task can finish without the other.
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

// Sanitizers need more address space than any limit leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(CBT_TEST_PLAIN)
TEST(ThreadPoolTest, APartOfTheThreadsIsAnExceptionAndNotTheEnd) {
  const pid_t child = fork();
  if (child == 0) {
    // Room for a few thread stacks.
    const rlimit room = {kGiB, kGiB};
    if (setrlimit(RLIMIT_AS, &room) != 0) _exit(1);
    try {
      const ThreadPool pool(100'000);
      _exit(2);
    } catch (const std::system_error&) {
      _exit(0);
    } catch (const std::bad_alloc&) {
      _exit(0);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}
#endif

}  // namespace thread_pool_test
}  // namespace cbt

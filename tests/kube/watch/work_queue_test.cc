#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cbt/kube/controller.h"

namespace cbt::kube {
namespace work_queue_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

std::string KeyFrom(WorkQueue& queue) {
  const std::optional<WorkQueue::Item> item = queue.Get(milliseconds(0));
  return item.has_value() ? item->key() : "-";
}

TEST(WorkQueueTest, HandsOutInOrderAndOnce) {
  WorkQueue queue;
  for (const char* key : {"a", "b", "a", "c", "b"}) queue.Add(key);
  EXPECT_EQ(queue.size(), 3U);
  EXPECT_EQ(KeyFrom(queue), "a");
  EXPECT_EQ(KeyFrom(queue), "b");
  EXPECT_EQ(KeyFrom(queue), "c");
  EXPECT_EQ(KeyFrom(queue), "-");
}

TEST(WorkQueueTest, AKeyThatIsWorkedOnComesAgainOnlyAfterwards) {
  WorkQueue queue;
  queue.Add("a");
  std::optional<WorkQueue::Item> item = queue.Get();
  ASSERT_TRUE(item.has_value());
  queue.Add("a");
  queue.Add("a");
  queue.Add("b");
  EXPECT_EQ(queue.size(), 1U);
  EXPECT_EQ(KeyFrom(queue), "b");
  EXPECT_EQ(KeyFrom(queue), "-");
  item->Done();
  EXPECT_EQ(KeyFrom(queue), "a");
  EXPECT_EQ(KeyFrom(queue), "-");
}

TEST(WorkQueueTest, AMovedItemGivesBackOnce) {
  WorkQueue queue;
  queue.Add("a");
  {
    std::optional<WorkQueue::Item> item = queue.Get();
    WorkQueue::Item moved = *std::move(item);
    item.reset();
    queue.Add("a");
    EXPECT_EQ(queue.size(), 0U);
    queue.Add("b");
    std::optional<WorkQueue::Item> other = queue.Get();
    moved = *std::move(other);  // gives "a" back
    EXPECT_EQ(queue.size(), 1U);
    EXPECT_EQ(moved.key(), "b");
  }
  EXPECT_EQ(KeyFrom(queue), "a");
}

TEST(WorkQueueTest, DelayedKeysComeInTheirTime) {
  WorkQueue queue;
  const Clock::time_point begin = Clock::now();
  queue.AddAfter("late", milliseconds(60));
  queue.AddAfter("early", milliseconds(20));
  queue.AddAfter("late", seconds(50));  // no later than before
  queue.AddAfter("moved", seconds(50));
  queue.AddAfter("moved", milliseconds(40));
  EXPECT_EQ(queue.size(), 0U);
  for (const auto& [key, delay] : std::map<int, std::pair<std::string, int>>{
           {1, {"early", 20}}, {2, {"moved", 40}}, {3, {"late", 60}}}) {
    const std::optional<WorkQueue::Item> item = queue.Get(seconds(30));
    ASSERT_TRUE(item.has_value());
    EXPECT_EQ(item->key(), delay.first) << key;
    EXPECT_GE(Clock::now() - begin, milliseconds(delay.second));
  }
  // At once beats later.
  queue.AddAfter("a", seconds(50));
  queue.Add("a");
  EXPECT_EQ(KeyFrom(queue), "a");
  EXPECT_FALSE(queue.Get(milliseconds(5)).has_value());
}

TEST(WorkQueueTest, RetriesWaitLongerUntilForgotten) {
  WorkQueue queue({.first_retry = milliseconds(8), .max_retry = milliseconds(30)});
  for (const int wait : {8, 16, 30, 30}) {
    const Clock::time_point begin = Clock::now();
    queue.Retry("a");
    std::optional<WorkQueue::Item> item = queue.Get(seconds(30));
    ASSERT_TRUE(item.has_value());
    EXPECT_GE(Clock::now() - begin, milliseconds(wait));
    item->Done();
  }
  EXPECT_EQ(queue.Retries("a"), 4);
  EXPECT_EQ(queue.Retries("b"), 0);
  queue.Forget("a");
  EXPECT_EQ(queue.Retries("a"), 0);
  queue.Add("a");
  std::optional<WorkQueue::Item> item = queue.Get();
  item->Retry();
  EXPECT_EQ(queue.Retries("a"), 1);
  item = queue.Get(seconds(30));
  ASSERT_TRUE(item.has_value());
  item->Succeed();
  EXPECT_EQ(queue.Retries("a"), 0);
}

TEST(WorkQueueTest, ADelayedKeyIsNotLostWhenItsWaiterIsBusy) {
  WorkQueue queue;
  std::atomic<bool> release{false};
  std::atomic<int> got{0};
  const auto work = [&] {
    while (std::optional<WorkQueue::Item> item = queue.Get()) {
      ++got;
      if (item->key() != "slow") continue;
      while (!release) std::this_thread::sleep_for(milliseconds(1));
    }
  };
  std::thread one(work);
  std::thread two(work);
  // Whichever waits for the delayed key may be the one that takes the slow one.
  queue.AddAfter("delayed", milliseconds(50));
  std::this_thread::sleep_for(milliseconds(10));
  queue.Add("slow");
  const Clock::time_point until = Clock::now() + seconds(30);
  while (got < 2 && Clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(got, 2);
  release = true;
  queue.ShutDown();
  one.join();
  two.join();
}

TEST(WorkQueueTest, ShutDownDrains) {
  WorkQueue queue;
  queue.Add("a");
  queue.Add("b");
  queue.AddAfter("never", milliseconds(1));
  std::optional<WorkQueue::Item> item = queue.Get();
  queue.Add("a");  // accepted before the end
  queue.ShutDown();
  EXPECT_TRUE(queue.shut_down());
  queue.Add("c");
  queue.AddAfter("c", milliseconds(1));
  queue.Retry("c");
  EXPECT_FALSE(queue.ShutDownAndDrain(milliseconds(5)));
  std::thread worker([&] {
    std::this_thread::sleep_for(milliseconds(20));
    item->Retry();  // no more retries
    EXPECT_EQ(KeyFrom(queue), "b");
    EXPECT_EQ(KeyFrom(queue), "a");
    EXPECT_EQ(KeyFrom(queue), "-");
  });
  // Ends at once with the last one, although it waits without a limit.
  EXPECT_TRUE(queue.ShutDownAndDrain(seconds(30)));
  worker.join();
  EXPECT_FALSE(queue.Get().has_value());
}

TEST(WorkQueueTest, WorkersRetryWhatFails) {
  std::mutex mutex;
  std::map<std::string, int> tries;
  std::vector<std::string> errors;
  WorkQueue queue({.first_retry = milliseconds(1)});
  {
    const Workers workers(
        queue, 3,
        [&](const std::string& key) -> absl::Status {
          std::lock_guard lock(mutex);
          const int attempt = ++tries[key];
          if (key == "throws" && attempt == 1) throw std::runtime_error("thrown");
          if (key == "fails" && attempt < 4) return absl::AbortedError("failed");
          return absl::OkStatus();
        },
        [&](const std::string& key, const absl::Status& error) {
          std::lock_guard lock(mutex);
          errors.push_back(key + ": " + std::string(error.message()));
        });
    for (const char* key : {"works", "fails", "throws"}) queue.Add(key);
    const Clock::time_point until = Clock::now() + seconds(30);
    for (;;) {
      std::lock_guard lock(mutex);
      if (tries["fails"] == 4 && tries["throws"] == 2 && tries["works"] == 1) break;
      ASSERT_LT(Clock::now(), until);
    }
  }
  EXPECT_EQ(tries, (std::map<std::string, int>{{"works", 1}, {"fails", 4}, {"throws", 2}}));
  EXPECT_EQ(errors.size(), 4U);
  EXPECT_EQ(std::count(errors.begin(), errors.end(), "throws: exception: thrown"), 1);
}

// Many threads add and work at once: no key is ever with two workers, and each key's last addition
// is followed by a run that began after it.
TEST(WorkQueueTest, NoKeyIsLostOrSharedUnderLoad) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  constexpr int kKeys = 12;
  constexpr int kAdditions = 3000;
  std::vector<std::atomic<int>> added(kKeys);
  std::vector<std::atomic<int>> seen(kKeys);
  std::vector<std::atomic<int>> workers_of(kKeys);
  std::atomic<int> shared{0};
  WorkQueue queue({.first_retry = milliseconds(1), .max_retry = milliseconds(2)});
  {
    const Workers workers(queue, 4, [&](const std::string& key) -> absl::Status {
      const auto k = static_cast<size_t>(std::stoi(key));
      if (++workers_of[k] != 1) ++shared;
      seen[k] = added[k].load();
      thread_local std::mt19937 random{std::random_device()()};
      const bool fails = random() % 5 == 0;
      if (random() % 50 == 0) std::this_thread::yield();
      --workers_of[k];
      return fails ? absl::UnavailableError("again") : absl::OkStatus();
    });
    std::vector<std::thread> producers;
    for (unsigned p = 0; p < 3; ++p) {
      producers.emplace_back([&, p] {
        std::mt19937 random(seed + p);
        for (int i = 0; i < kAdditions; ++i) {
          const size_t k = random() % kKeys;
          ++added[k];
          if (random() % 10 == 0) {
            queue.AddAfter(std::to_string(k), milliseconds(random() % 3));
          } else {
            queue.Add(std::to_string(k));
          }
        }
      });
    }
    for (std::thread& producer : producers) producer.join();
    const Clock::time_point until = Clock::now() + seconds(60);
    for (size_t k = 0; k < kKeys; ++k) {
      while (seen[k] != added[k] && Clock::now() < until) std::this_thread::yield();
      EXPECT_EQ(seen[k], added[k]) << "key " << k;
    }
  }
  EXPECT_EQ(shared, 0);
}

}  // namespace work_queue_test
}  // namespace cbt::kube

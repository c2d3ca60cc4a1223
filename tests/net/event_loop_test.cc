#include "net/event_loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt::net {
namespace event_loop_test {

using std::chrono::milliseconds;
using Clock = EventLoop::Clock;

class Call final : public Task {
 public:
  explicit Call(std::function<void()> what) : what_(std::move(what)) {}
  void Run() noexcept override { what_(); }

 private:
  std::function<void()> what_;
};

class Alarm final : public Timer {
 public:
  explicit Alarm(std::function<void()> what) : what_(std::move(what)) {}
  void OnTime() noexcept override { what_(); }

 private:
  std::function<void()> what_;
};

class Ready final : public Watch {
 public:
  explicit Ready(std::function<void(uint32_t)> what) : what_(std::move(what)) {}
  void OnReady(uint32_t events) noexcept override { what_(events); }

 private:
  std::function<void(uint32_t)> what_;
};

TEST(EventLoop, RunsTasksInTheirOrder) {
  const auto loop = test::ValueOf(EventLoop::Create());
  std::vector<int> ran;
  Call a([&] { ran.push_back(1); });
  Call b([&] { ran.push_back(2); });
  Call late([&] { ran.push_back(3); });
  loop->Defer(late);
  loop->Post(a);
  loop->Post(b);
  loop->Post(a);
  loop->RunOnce(milliseconds(-1));
  EXPECT_EQ(ran, (std::vector{1, 2, 3}));
  loop->RunOnce(milliseconds(0));
  EXPECT_EQ(ran.size(), 3U);
}

TEST(EventLoop, TaskThatQueuesItselfRunsOncePerTurn) {
  const auto loop = test::ValueOf(EventLoop::Create());
  int runs = 0;
  Call again([&] {
    ++runs;
    loop->Defer(again);
  });
  loop->Post(again);
  loop->RunOnce(milliseconds(-1));
  loop->RunOnce(milliseconds(-1));
  EXPECT_LE(runs, 4);
  EXPECT_GE(runs, 2);
  loop->Cancel(again);
  const int before = runs;
  loop->RunOnce(milliseconds(0));
  EXPECT_EQ(runs, before);
}

TEST(EventLoop, CancelledTaskDoesNotRun) {
  const auto loop = test::ValueOf(EventLoop::Create());
  std::vector<int> ran;
  Call a([&] { ran.push_back(1); });
  Call b([&] { ran.push_back(2); });
  Call first([&] { loop->Cancel(b); });
  loop->Post(first);
  loop->Post(a);
  loop->Post(b);
  loop->RunOnce(milliseconds(0));
  EXPECT_EQ(ran, (std::vector{1}));
  loop->Post(b);
  loop->RunOnce(milliseconds(0));
  EXPECT_EQ(ran, (std::vector{1, 2}));
}

// Every post from any thread is followed by a run, however threads and sleep interleave.
TEST(EventLoop, LosesNoPost) {
  const auto loop = test::ValueOf(EventLoop::Create());
  constexpr int kPosts = 20'000;
  struct Counter {
    std::atomic<int> asked{0};
    std::atomic<int> seen{0};
  };
  std::array<Counter, 2> counters;
  std::vector<std::unique_ptr<Call>> tasks;
  for (Counter& counter : counters) {
    tasks.push_back(std::make_unique<Call>([&] { counter.seen = counter.asked.load(); }));
  }
  std::thread runner([&] { loop->Run(); });
  std::vector<std::thread> threads;
  for (size_t i = 0; i < counters.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int n = 1; n <= kPosts; ++n) {
        counters[i].asked = n;
        loop->Post(*tasks[i]);
        // Sometimes waits until the loop sleeps.
        if (n % 64 == 0) {
          while (counters[i].seen != n) std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  loop->Stop();
  runner.join();
  for (Counter& counter : counters) EXPECT_EQ(counter.seen, kPosts);
}

TEST(EventLoop, KnowsItsThread) {
  const auto loop = test::ValueOf(EventLoop::Create());
  const auto other = test::ValueOf(EventLoop::Create());
  bool in = false;
  bool in_other = true;
  Call ask([&] {
    in = loop->IsInLoop();
    in_other = other->IsInLoop();
  });
  loop->Post(ask);
  EXPECT_FALSE(loop->IsInLoop());
  loop->RunOnce(milliseconds(0));
  EXPECT_TRUE(in);
  EXPECT_FALSE(in_other);
  EXPECT_FALSE(loop->IsInLoop());
}

TEST(EventLoop, WaitsForTimersAndNoLonger) {
  const auto loop = test::ValueOf(EventLoop::Create());
  bool rang = false;
  Alarm alarm([&] { rang = true; });
  const auto begin = Clock::now();
  loop->Schedule(alarm, begin + milliseconds(20));
  while (!rang) loop->RunOnce(milliseconds(-1));
  EXPECT_GE(Clock::now() - begin, milliseconds(20));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  EXPECT_FALSE(alarm.scheduled());
}

// Compared with a sorted list.
TEST(EventLoop, TimersRingInOrderOfTime) {
  test::SeededRandom random(7);
  for (int round = 0; round < 50; ++round) {
    TimerHeap heap;
    std::vector<std::unique_ptr<Alarm>> alarms;
    std::vector<std::pair<Clock::time_point, Timer*>> model;
    for (int step = 0; step < 200; ++step) {
      if (random() % 3 != 0 || model.empty()) {
        alarms.push_back(std::make_unique<Alarm>([] {}));
        const Clock::time_point at{std::chrono::nanoseconds(random() % 64)};
        heap.Insert(*alarms.back(), at);
        model.emplace_back(at, alarms.back().get());
      } else {
        const size_t index = random() % model.size();
        heap.Remove(*model[index].second);
        EXPECT_FALSE(model[index].second->scheduled());
        model.erase(model.begin() + static_cast<ptrdiff_t>(index));
      }
      const auto first = std::min_element(model.begin(), model.end(),
                                          [](auto& a, auto& b) { return a.first < b.first; });
      ASSERT_EQ(heap.first() == nullptr, model.empty());
      if (!model.empty()) {
        ASSERT_EQ(TimerHeap::TimeOf(*heap.first()), first->first);
      }
    }
    Clock::time_point last{};
    for (size_t left = model.size(); left > 0; --left) {
      Timer& timer = *heap.first();
      ASSERT_GE(TimerHeap::TimeOf(timer), last);
      last = TimerHeap::TimeOf(timer);
      heap.Remove(timer);
    }
    ASSERT_EQ(heap.first(), nullptr);
  }
}

TEST(EventLoop, ReportsDescriptorsUntilTheyAreRemoved) {
  const auto loop = test::ValueOf(EventLoop::Create());
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  int ready = 0;
  Ready watch([&](uint32_t events) {
    ++ready;
    EXPECT_EQ(events, EPOLLIN);
  });
  ASSERT_OK(loop->Add(pair[0], EPOLLIN, watch));
  loop->RunOnce(milliseconds(0));
  EXPECT_EQ(ready, 0);
  ASSERT_EQ(write(pair[1], "x", 1), 1);
  loop->RunOnce(milliseconds(-1));
  loop->RunOnce(milliseconds(-1));
  EXPECT_EQ(ready, 2);
  loop->Change(pair[0], 0, watch);
  loop->RunOnce(milliseconds(0));
  EXPECT_EQ(ready, 2);
  loop->Change(pair[0], EPOLLIN, watch);
  loop->RunOnce(milliseconds(-1));
  EXPECT_EQ(ready, 3);
  loop->Remove(pair[0], watch);
  loop->RunOnce(milliseconds(0));
  EXPECT_EQ(ready, 3);
  close(pair[0]);
  close(pair[1]);
}

// Two descriptors are ready in the same turn, and the first one's handler removes the other.
TEST(EventLoop, NoEventAfterRemoval) {
  const auto loop = test::ValueOf(EventLoop::Create());
  int a[2];
  int b[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, a), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, b), 0);
  int events = 0;
  std::unique_ptr<Ready> watch_a;
  std::unique_ptr<Ready> watch_b;
  const auto remove_both = [&](uint32_t) {
    ++events;
    loop->Remove(a[0], *watch_a);
    loop->Remove(b[0], *watch_b);
  };
  watch_a = std::make_unique<Ready>(remove_both);
  watch_b = std::make_unique<Ready>(remove_both);
  ASSERT_OK(loop->Add(a[0], EPOLLIN, *watch_a));
  ASSERT_OK(loop->Add(b[0], EPOLLIN, *watch_b));
  ASSERT_EQ(write(a[1], "x", 1), 1);
  ASSERT_EQ(write(b[1], "x", 1), 1);
  loop->RunOnce(milliseconds(-1));
  EXPECT_EQ(events, 1);
  for (const int fd : {a[0], a[1], b[0], b[1]}) close(fd);
}

}  // namespace event_loop_test
}  // namespace cbt::net

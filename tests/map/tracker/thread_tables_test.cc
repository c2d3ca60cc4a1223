// Lock-free tables of the tracker: the threads at work, and the writes in flight.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "map/tracker/pin_table.h"
#include "map/tracker/write_table.h"

namespace cbt {
namespace thread_tables_test {

constexpr size_t kOwnPlaces = 256;

// Pins and unpins on a new thread. Returns the thread's own slot, null if it has none.
const void* PinAndUnpin(PinTable& pins) {
  const unsigned parity = ThreadNumber() % 2;
  const PinTable::PinOf pin = pins.Pin(parity);
  std::atomic<unsigned>* const place = pin.own;
  EXPECT_EQ(place != nullptr, ThreadNumber() < kOwnPlaces);
  if (place != nullptr) {
    EXPECT_EQ(place->load(), 1 + parity);
  }
  PinTable::Unpin(pin);
  EXPECT_EQ(pins.OwnPlace(), place);
  if (place != nullptr) {
    EXPECT_EQ(place->load(), 0u);
    pins.PinAt(*place, 1 - parity);
    EXPECT_EQ(place->load(), 2 - parity);
    PinTable::UnpinAt(*place);
  }
  // No thread is at work: neither call waits.
  pins.Wait(0);
  pins.Wait(1);
  return place;
}

TEST(PinTableTest, AThreadKeepsItsNumber) {
  std::thread([] {
    const size_t number = ThreadNumber();
    EXPECT_EQ(ThreadNumber(), number);
  }).join();
}

// Two threads on one slot would release each other's pins.
TEST(PinTableTest, EachThreadPinsAtAPlaceOfItsOwn) {
  constexpr size_t kThreads = 8;
  PinTable pins;
  PinAndUnpin(pins);
  std::mutex one_at_a_time;
  std::set<const void*> places;
  std::set<size_t> numbers;
  std::atomic<size_t> met{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      EXPECT_EQ(pins.OwnPlace(), nullptr);  // the thread has no number yet
      {
        const std::lock_guard<std::mutex> lock(one_at_a_time);
        if (const void* const place = PinAndUnpin(pins); place != nullptr) places.insert(place);
        numbers.insert(ThreadNumber());
      }
      // All threads live at the same time.
      for (++met; met < kThreads;) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(numbers.size(), kThreads);
  EXPECT_EQ(places.size(),
            static_cast<size_t>(std::distance(numbers.begin(), numbers.lower_bound(kOwnPlaces))));
}

// A signal handler marks while its thread is marking: ending the inner pin must not end the outer
// one.
TEST(PinTableTest, AttackAlsoAPinWithinAPinLeavesTheOuterOne) {
  PinTable pins;
  static_cast<void>(ThreadNumber());
  const PinTable::PinOf outer = pins.Pin(0);
  const PinTable::PinOf inner = pins.Pin(0);
  PinTable::Unpin(inner);
  std::atomic<bool> over{false};
  std::atomic<bool> waiting{false};
  std::thread waiter([&] {
    waiting = true;
    pins.Wait(0);
    over = true;
  });
  while (!waiting) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  EXPECT_FALSE(over);
  PinTable::Unpin(outer);
  waiter.join();
  EXPECT_TRUE(over);
}

// Hundreds of threads share overflow slots. Slots that become free must be used again.
TEST(PinTableTest, PlacesThatAreFreeAreTakenFirst) {
  PinTable pins;
  const auto run = [&pins](size_t count) {
    std::atomic<size_t> met{0};
    std::atomic<size_t> at_own_places{0};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < count; ++i) {
      threads.emplace_back([&] {
        if (PinAndUnpin(pins) != nullptr) ++at_own_places;
        for (++met; met < count;) std::this_thread::yield();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return at_own_places.load();
  };
  EXPECT_LE(run(kOwnPlaces + 50), kOwnPlaces);
  EXPECT_EQ(run(50), 50u);
}

bool UsesMembarrier() {
#if defined(__SANITIZE_THREAD__)
  return false;  // the thread sanitizer does not model such barriers
#else
  const long can = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  return can >= 0 && (can & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0;
#endif
}

// Pins by plain stores need a barrier that the kernel only runs for processes that registered.
TEST(PinTableTest, HasAskedForTheBarrierThatItUses) {
  if (!UsesMembarrier()) GTEST_SKIP() << "no membarrier";
  const PinTable pins;
  EXPECT_EQ(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0), 0);
}

// Continuing would lose writes: writers rely on the barrier.
TEST(PinTableTest, StopsRatherThanGoOnWithoutItsBarrier) {
  if (!UsesMembarrier()) GTEST_SKIP() << "no membarrier";
  constexpr int kNoFilters = 77;
  // In a child process, because a system call filter cannot be removed.
  const pid_t child = fork();
  if (child == 0) {
    const PinTable pins;
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter = {std::size(program), program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
      _exit(kNoFilters);
    }
    pins.Wait(0);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoFilters) GTEST_SKIP() << "no filters";
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
}

// A range is seen whole or not at all: never the start of one with the end of another.
TEST(WriteTableTest, RangesAreSeenWhole) {
  const PinTable pins;
  WriteTable table(1, pins);
  constexpr uint64_t kLength = 7;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> added{0};
  std::thread writer([&] {
    for (uint64_t begin = 0; !stop; begin += kLength) {
      table.Remove(table.Add(begin, begin + kLength));
      added.fetch_add(1, std::memory_order_relaxed);
    }
  });
  uint64_t seen = 0;
  uint64_t torn = 0;
  while (seen < 20'000 || added < 500'000) {
    table.ForEach([&](uint64_t begin, uint64_t end) {
      ++seen;
      if (end - begin != kLength || begin % kLength != 0) ++torn;
    });
  }
  stop = true;
  writer.join();
  EXPECT_EQ(torn, 0u);
}

// Threads begin at different places; all places are used before the list.
TEST(WriteTableTest, EveryPlaceIsUsedWhereverAThreadBegins) {
  constexpr size_t kPlaces = 4;
  constexpr uint64_t kRanges = kPlaces + 2;
  const PinTable pins;
  static_cast<void>(ThreadNumber());
  WriteTable table(kPlaces, pins);
  for (int other = 0; other < 4; ++other) {
    std::thread([&] {
      std::set<uint64_t> places;
      std::set<uint64_t> want;
      for (uint64_t i = 0; i < kRanges; ++i) {
        places.insert(table.Add(10 * i, 10 * i + 5));
        want.insert(10 * i);
      }
      EXPECT_EQ(places.size(), kRanges);
      EXPECT_EQ(std::distance(places.begin(), places.lower_bound(kPlaces)),
                static_cast<std::ptrdiff_t>(kPlaces));
      std::set<uint64_t> got;
      table.ForEach([&](uint64_t begin, uint64_t end) {
        EXPECT_EQ(end, begin + 5);
        got.insert(begin);
      });
      EXPECT_EQ(got, want);
      for (const uint64_t place : places) table.Remove(place);
      table.ForEach([&](uint64_t, uint64_t) { ADD_FAILURE(); });
    }).join();
  }
}

}  // namespace thread_tables_test
}  // namespace cbt

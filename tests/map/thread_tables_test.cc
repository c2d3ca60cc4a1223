// What threads tell each other without a lock: what they are at, and which writes are in flight.
#include <gtest/gtest.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "map/pin_table.h"
#include "map/write_table.h"

namespace cbt {
namespace {

// Two threads with one place would take each other's pins back.
TEST(PinTableTest, EachThreadPinsAtAPlaceOfItsOwn) {
  constexpr size_t kThreads = 8;
  PinTable pins;
  std::mutex mutex;
  std::set<const void*> places;
  std::atomic<size_t> pinned{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      EXPECT_EQ(pins.OwnPlace(), nullptr);  // before it has a number
      const unsigned parity = ThreadNumber() % 2;
      pins.Pin(parity);
      std::atomic<unsigned>* const place = pins.OwnPlace();
      {
        const std::lock_guard<std::mutex> lock(mutex);
        places.insert(place);
      }
      for (++pinned; pinned < kThreads;) std::this_thread::yield();
      ASSERT_NE(place, nullptr);
      EXPECT_EQ(place->load(), 1 + parity);
      pins.Unpin(parity);
      EXPECT_EQ(place->load(), 0u);
      pins.PinAt(*place, 1 - parity);
      EXPECT_EQ(place->load(), 2 - parity);
      PinTable::UnpinAt(*place);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(places.size(), kThreads);
  // Nobody is at work: neither waits.
  pins.Wait(0);
  pins.Wait(1);
}

// Pins that are plain stores rely on a barrier that the kernel gives only to who has asked for it.
TEST(PinTableTest, HasAskedForTheBarrierThatItUses) {
  const long can = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  if (can < 0 || (can & MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) GTEST_SKIP() << "no membarrier";
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not know such barriers, so they are not used";
#else
  const PinTable pins;
  EXPECT_EQ(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0), 0);
#endif
}

// A range is seen as it was put in, or not at all: never one's begin with another's end.
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

}  // namespace
}  // namespace cbt

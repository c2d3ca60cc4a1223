#include "cbt/change_tracker.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <rapidcheck/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/map/maps.h"
#include "tests/map/tracker/epochs.h"
#include "tests/support/generators.h"
#include "tests/support/status.h"

namespace cbt {
namespace change_tracker_test {

using test::Blocks;
using test::BlocksOf;
using test::ValueOf;

constexpr uint64_t kG = 4096;

TrackerOptions InMemory(uint64_t blocks) {
  return {.geometry = {blocks * kG, kG}, .volume = "vol", .base = "monday"};
}

RC_GTEST_PROP(ChangeTrackerTest, TellsTheBlocksThatWereWritten, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const uint64_t blocks = test::Between<uint64_t>(1, 200000);
  TrackerOptions options = InMemory(blocks);
  options.geometry.capacity -= random() % kG;
  const auto tracker = ValueOf(ChangeTracker::Create(options));
  std::vector<bool> oracle(blocks);
  for (int i = 0; i < 40; ++i) {
    const uint64_t offset = random() % options.geometry.capacity;
    const uint64_t longest = random() % 3 == 0 ? options.geometry.capacity : 20 * kG;
    const uint64_t length = std::min(1 + random() % longest, options.geometry.capacity - offset);
    test::RequireOk(tracker->Mark({offset, length}));
    for (uint64_t b = offset / kG; b * kG < offset + length; ++b) oracle[b] = true;
    if (i % 10 == 9) {
      Blocks want;
      for (uint64_t b = 0; b < blocks; ++b) {
        if (oracle[b]) want.push_back(b);
      }
      RC_ASSERT(BlocksOf(ValueOf(tracker->Changes())) == want);
    }
  }
}

// The tracker tests a word at a time whether a write is marked already. An unmarked block must be
// found at every position.
TEST(ChangeTrackerTest, AWriteOverMarkedBlocksFindsTheOneThatIsNot) {
  constexpr uint64_t kBlocks = 300;
  for (uint64_t hole = 0; hole < kBlocks; ++hole) {
    const uint64_t word = hole / 64 * 64;
    for (const auto& [begin, end] : {std::pair{uint64_t{0}, kBlocks},
                                     {word, kBlocks},
                                     {hole, kBlocks},
                                     {uint64_t{0}, hole + 1},
                                     {word, std::min(word + 64, kBlocks)},
                                     {hole, hole + 1}}) {
      ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(InMemory(kBlocks)));
      if (hole > 0) {
        ASSERT_OK(tracker->Mark({0, hole * kG}));
      }
      if (hole + 1 < kBlocks) {
        ASSERT_OK(tracker->Mark({(hole + 1) * kG, (kBlocks - hole - 1) * kG}));
      }
      ASSERT_FALSE(ValueOf(tracker->Changes())->Contains(hole));
      ASSERT_OK(tracker->Mark({begin * kG, (end - begin) * kG}));
      ASSERT_TRUE(ValueOf(tracker->Changes())->Contains(hole))
          << hole << " in " << begin << " to " << end;
    }
  }
}

TEST(ChangeTrackerTest, EpochsFollowEachOther) {
  ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(InMemory(1000)));
  ASSERT_OK(tracker->Mark({0, 1}));
  ASSERT_OK(tracker->OpenEpoch("tuesday"));
  // Within the window a mark counts in both epochs.
  ASSERT_OK(tracker->Mark({5 * kG, 1}));
  EXPECT_EQ(tracker->OpenEpoch("x").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(tracker->epochs().size(), 2u);
  for (const auto& epoch : tracker->epochs()) EXPECT_TRUE(epoch.exact) << epoch.base;
  ASSERT_OK_AND_ASSIGN(const ChangeMap monday, test::EndEpoch(*tracker));
  EXPECT_EQ(BlocksOf(monday), (Blocks{0, 5}));
  EXPECT_EQ(monday.identity(), (ChangeMapIdentity{"vol", "monday", "tuesday"}));
  ASSERT_OK(tracker->Mark({6 * kG, 1}));
  EXPECT_EQ(tracker->CloseEpoch().status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_OK(tracker->OpenEpoch("wednesday"));
  EXPECT_EQ(BlocksOf(ValueOf(test::EndEpoch(*tracker))), (Blocks{5, 6}));
  EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), (Blocks{}));
  EXPECT_EQ(tracker->epochs().front().base, "wednesday");
}

TEST(ChangeTrackerTest, WritesInFlightAreInBothEpochs) {
  TrackerOptions options = InMemory(1000);
  options.writes_in_flight = 2;
  ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(options));
  // More writes than the table has slots.
  std::vector<TrackedWrite> writes;
  for (uint64_t i = 0; i < 5; ++i) writes.push_back(ValueOf(tracker->Begin({i * kG, 1})));
  ASSERT_OK_AND_ASSIGN(TrackedWrite ended, tracker->Begin({7 * kG, 1}));
  ended.End();
  ASSERT_OK(tracker->OpenEpoch("tuesday"));
  EXPECT_EQ(BlocksOf(ValueOf(test::EndEpoch(*tracker))), (Blocks{0, 1, 2, 3, 4, 7}));
  EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), (Blocks{0, 1, 2, 3, 4}));
  // A write that spans several snapshots is in every epoch.
  for (size_t i = 1; i < 5; ++i) writes[i].End();
  for (const char* day : {"wednesday", "thursday"}) {
    ASSERT_OK(tracker->OpenEpoch(day));
    ASSERT_OK(test::EndEpoch(*tracker));
  }
  EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), (Blocks{0}));
}

TEST(ChangeTrackerTest, ACancelledEpochLosesNothing) {
  ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(InMemory(1000)));
  EXPECT_EQ(tracker->CancelEpoch().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_OK(tracker->Mark({0, 1}));
  ASSERT_OK(tracker->OpenEpoch("tuesday"));
  ASSERT_OK(tracker->Mark({kG, 1}));
  ASSERT_OK(tracker->CancelEpoch());
  ASSERT_OK(tracker->Mark({2 * kG, 1}));
  EXPECT_EQ(tracker->epochs().front().base, "monday");
  EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), (Blocks{0, 1, 2}));
  ASSERT_OK(tracker->OpenEpoch("tuesday"));
  EXPECT_EQ(BlocksOf(ValueOf(test::EndEpoch(*tracker))), (Blocks{0, 1, 2}));
  EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), (Blocks{}));
}

TEST(ChangeTrackerTest, RefusesWhatItCannotTrack) {
  TrackerOptions options = InMemory(10);
  options.geometry.capacity -= 5;
  ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(options));
  EXPECT_OK(tracker->Mark({10 * kG - 6, 1}));
  EXPECT_OK(tracker->Begin({10 * kG - 5, 0}));
  EXPECT_EQ(tracker->Mark({10 * kG - 6, 2}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(tracker->Begin({UINT64_MAX, 2}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), (Blocks{9}));
  EXPECT_EQ(tracker->OpenEpoch("\xff").code(), absl::StatusCode::kInvalidArgument);
  options.geometry.granularity = 0;
  EXPECT_EQ(ChangeTracker::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.geometry.granularity = kG;
  for (const uint64_t region_bytes : {uint64_t{0}, kG + 1, 2 * kMaxGranularity}) {
    options.region_bytes = region_bytes;
    EXPECT_EQ(ChangeTracker::Create(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

// Threads that wrote once and stay alive.
class IdleWriters {
 public:
  IdleWriters(ChangeTracker& tracker, size_t count) {
    gate_.lock();
    for (size_t i = 0; i < count; ++i) {
      threads_.emplace_back([&] {
        EXPECT_OK(tracker.Mark({0, 1}));
        ++wrote_;
        const std::lock_guard<std::mutex> lock(gate_);
      });
    }
    while (wrote_ < count) std::this_thread::yield();
  }
  ~IdleWriters() {
    gate_.unlock();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::mutex gate_;
  std::atomic<size_t> wrote_{0};
  std::vector<std::thread> threads_;
};

// Threads write versions to a disk that is copied at each snapshot. Blocks that differ between two
// copies must be in the epoch between them. `others`: the number of idle threads that wrote before.
void WriteBesideSnapshots(size_t others) {
  constexpr uint64_t kBlocks = 3000;
  TrackerOptions options = InMemory(kBlocks);
  options.writes_in_flight = 3;
  const auto tracker = ValueOf(ChangeTracker::Create(options));
  const IdleWriters idle(*tracker, others);
  std::vector<std::atomic<uint64_t>> disk(kBlocks);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> written{0};
  std::vector<std::thread> writers;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    writers.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      while (!stop) {
        const uint64_t begin = random() % kBlocks;
        const uint64_t end = std::min<uint64_t>(kBlocks, begin + 1 + random() % 4);
        absl::StatusOr<TrackedWrite> write = tracker->Begin({begin * kG, (end - begin) * kG});
        ASSERT_OK(write);
        if (random() % 4 == 0) std::this_thread::yield();
        for (uint64_t b = begin; b < end; ++b) disk[b].fetch_add(1);
        if (random() % 4 == 0) std::this_thread::yield();
        write->End();
        written.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  std::vector<uint64_t> before(kBlocks);
  std::string missed;  // the first one
  uint64_t changed = 0;
  for (int epoch = 0; epoch < 400; ++epoch) {
    // Otherwise a fast machine takes all snapshots before the first write.
    const uint64_t so_far = written;
    while (written < so_far + 50) std::this_thread::yield();
    ASSERT_OK(tracker->OpenEpoch(absl::StrCat("s", epoch)));
    std::vector<uint64_t> after(kBlocks);
    for (uint64_t b = 0; b < kBlocks; ++b) after[b] = disk[b];
    const ChangeMap map = ValueOf(test::EndEpoch(*tracker));
    for (uint64_t b = 0; b < kBlocks; ++b) {
      if (after[b] == before[b]) continue;
      ++changed;
      if (missed.empty() && !map->Contains(b)) {
        missed = absl::StrCat("block ", b, " went from version ", before[b], " to ", after[b],
                              " and is not in epoch ", epoch);
      }
    }
    before = after;
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_GT(changed, 10000u);
  EXPECT_EQ(missed, "");
}

TEST(ChangeTrackerTest, NoWriteIsInNoEpochWhateverThreadsDo) { WriteBesideSnapshots(0); }

// The first 256 threads own a pin slot each; the others share some.
TEST(ChangeTrackerTest, NoWriteIsInNoEpochWhateverManyThreadsDo) { WriteBesideSnapshots(256); }

// A thread that meets a change of epochs must not leak its pin: the next change would wait for it
// indefinitely.
TEST(ChangeTrackerTest, ThreadsThatSharePinsTakeThemBack) {
  ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(InMemory(1)));
  const IdleWriters idle(*tracker, 256);
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([&] {
      while (!stop) ASSERT_OK(tracker->Mark({0, kG}));
    });
  }
  for (int epoch = 0; epoch < 10'000; ++epoch) {
    ASSERT_OK(tracker->OpenEpoch("next"));
    ASSERT_OK(test::EndEpoch(*tracker));
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
}

// Long, slow marks while epochs change as fast as possible.
TEST(ChangeTrackerTest, EveryMarkIsInSomeEpoch) {
  constexpr uint64_t kThreads = 6;
  constexpr uint64_t kMarks = 60;
  constexpr uint64_t kLength = 40000;
  ASSERT_OK_AND_ASSIGN(const auto tracker,
                       ChangeTracker::Create(InMemory(kThreads * kMarks * kLength)));
  std::atomic<uint64_t> running{kThreads};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kMarks; ++i) {
        const uint64_t begin = (t * kMarks + i) * kLength + 1;
        ASSERT_OK(tracker->Mark({begin * kG, (kLength - 2) * kG}));
      }
      --running;
    });
  }
  ASSERT_OK_AND_ASSIGN(ChangeMap all,
                       ChangeMap::Empty(InMemory(kThreads * kMarks * kLength).geometry));
  while (running > 0) {
    ASSERT_OK(tracker->OpenEpoch("next"));
    ASSERT_OK(all.UniteWith(ValueOf(test::EndEpoch(*tracker))));
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_OK(all.UniteWith(ValueOf(tracker->Changes())));
  EXPECT_EQ(all->cardinality(), kThreads * kMarks * (kLength - 2));
}

// A write follows its mark. If the mark returns after the next epoch was opened, the write belongs
// to that epoch, however long ago the mark began.
TEST(ChangeTrackerTest, AMarkThatReturnsInAnEpochIsInItOrInALaterOne) {
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kMarks = 40;
  constexpr uint64_t kLength = uint64_t{1} << 20;  // blocks: slow enough to be overtaken
  ASSERT_OK_AND_ASSIGN(const auto tracker,
                       ChangeTracker::Create(InMemory(kThreads * kMarks * kLength)));
  std::atomic<size_t> opened{0};
  std::atomic<uint64_t> running{kThreads};
  std::vector<size_t> returned_in(kThreads * kMarks);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = t; i < kThreads * kMarks; i += kThreads) {
        ASSERT_OK(tracker->Mark({i * kLength * kG, kLength * kG}));
        returned_in[i] = opened;
      }
      --running;
    });
  }
  std::vector<ChangeMap> maps;  // by epoch
  while (running > 0) {
    ASSERT_OK(tracker->OpenEpoch("next"));
    ++opened;
    maps.push_back(ValueOf(test::EndEpoch(*tracker)));
  }
  for (std::thread& thread : threads) thread.join();
  maps.push_back(ValueOf(tracker->Changes()));

  for (uint64_t i = 0; i < kThreads * kMarks; ++i) {
    ASSERT_OK_AND_ASSIGN(ChangeMap since,
                         ChangeMap::Empty(InMemory(kThreads * kMarks * kLength).geometry));
    for (size_t epoch = returned_in[i]; epoch < maps.size(); ++epoch) {
      ASSERT_OK(since.UniteWith(maps[epoch]));
    }
    for (const uint64_t block : {i * kLength, i * kLength + kLength / 2, (i + 1) * kLength - 1}) {
      ASSERT_TRUE(since->Contains(block)) << "mark " << i << " of epoch " << returned_in[i];
    }
  }
}

// A thread that repeats a step, and stops at any instruction of it until it is let go.
class StoppableThread {
 public:
  explicit StoppableThread(const std::function<void()>& step) {
    struct sigaction action {};
    action.sa_handler = &Stop;
    EXPECT_EQ(sigaction(SIGUSR1, &action, &before_), 0);
    thread_ = std::thread([this, step] {
      while (!end_) step();
    });
  }
  ~StoppableThread() {
    end_ = true;
    thread_.join();
    EXPECT_EQ(sigaction(SIGUSR1, &before_, nullptr), 0);
  }
  StoppableThread(const StoppableThread&) = delete;
  StoppableThread& operator=(const StoppableThread&) = delete;

  void StopAnywhere() {
    go_ = stopped_ = false;
    EXPECT_EQ(pthread_kill(thread_.native_handle(), SIGUSR1), 0);
    while (!stopped_) std::this_thread::yield();
  }
  static void LetGo() { go_ = true; }

 private:
  static void Stop(int) {
    stopped_ = true;
    while (!go_) sched_yield();
  }

  static inline std::atomic<bool> stopped_;
  static inline std::atomic<bool> go_;
  struct sigaction before_ {};
  std::atomic<bool> end_{false};
  std::thread thread_;
};

// A mark that finds its blocks marked writes nothing: only its pin shows an epoch that it is under
// way, and that its blocks may be looked up in the epoch before.
TEST(ChangeTrackerTest, AnEpochWaitsForAMarkThatChangesNothing) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer delays signals";
#endif
  constexpr uint64_t kBlocks = 4'000'000;  // nearly all of the time goes into the look at them
  constexpr int kRounds = 20;
  ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(InMemory(kBlocks)));
  std::atomic<uint64_t> marks{0};
  StoppableThread thread([&] {
    EXPECT_OK(tracker->Mark({0, kBlocks * kG}));
    ++marks;
  });
  int waited = 0;
  for (int round = 0; round < kRounds; ++round) {
    // The first of an epoch sets the bits.
    const uint64_t before = marks;
    while (marks < before + 2) std::this_thread::yield();
    thread.StopAnywhere();
    std::atomic<bool> opened{false};
    std::thread epoch([&] {
      EXPECT_OK(tracker->OpenEpoch("next"));
      opened = true;
      EXPECT_OK(test::EndEpoch(*tracker));
    });
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    while (!opened && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    waited += opened ? 0 : 1;
    StoppableThread::LetGo();
    epoch.join();
  }
  // It may have stopped between two marks.
  EXPECT_GE(waited, kRounds * 3 / 4);
}

}  // namespace change_tracker_test
}  // namespace cbt

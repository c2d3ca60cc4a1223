// Kills a tracker's process again and again: two threads write, a third takes snapshots, SIGKILL
// comes at any moment. Shared memory that outlives the process records the writes, and each map is
// compared with it:
//
// - a block that differs between two snapshots is always in the map of the epoch between them;
// - an exact map only has blocks that were announced in its epoch;
// - a closed epoch keeps its map across restarts until it is acknowledged;
// - any other map over-reports whole regions, and nothing more.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bitset>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cbt/change_tracker.h"
#include "tests/map/maps.h"
#include "tests/map/tracker/epochs.h"
#include "tests/support/child.h"
#include "tests/support/figures.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace tracker_crash_test {

using test::BlocksOf;
using test::ValueOf;

constexpr uint64_t kG = 4096;
constexpr size_t kBlocks = 2048;
constexpr size_t kRegion = 16;  // blocks
constexpr size_t kRecent = 4;   // epochs; two exist at a time
constexpr size_t kThreads = 2;

using Set = std::bitset<kBlocks>;

Set RegionsOf(const Set& blocks) {
  Set regions;
  for (size_t block = 0; block < kBlocks; ++block) {
    if (!blocks[block]) continue;
    for (size_t i = 0; i < kRegion; ++i) regions.set(block / kRegion * kRegion + i);
  }
  return regions;
}

Set SetOf(const ChangeMap& map) {
  Set set;
  for (const uint64_t block : BlocksOf(map)) set.set(block);
  return set;
}

// Epoch n starts at snapshot n. Shared by all processes; the atomics are lock-free.
struct World {
  // The storage: the version of each block, and the snapshots of them.
  std::array<std::atomic<uint32_t>, kBlocks> storage;
  std::array<std::array<uint32_t, kBlocks>, kRecent> snapshots;
  std::atomic<uint32_t> taken;  // the newest complete snapshot

  // The blocks announced in each epoch, and what each thread announces now: block + 1, or 0.
  std::array<std::array<std::atomic<bool>, kBlocks>, kRecent> announced;
  std::array<std::atomic<uint64_t>, kThreads> in_flight;
  std::atomic<uint32_t> oldest;  // open epoch
  std::atomic<uint32_t> newest;  // epoch that is open or being opened

  // The map that CloseEpoch() returned for epoch `returned`, and for how long it must be repeated.
  std::atomic<uint32_t> returned;
  std::array<bool, kBlocks> map;
  std::atomic<uint32_t> acknowledging;  // epochs for which Acknowledge() was called
  std::atomic<uint32_t> acknowledged;   // and for which it returned
  // Writes in flight at a crash: they also count in the epochs that follow.
  std::array<std::array<bool, kBlocks>, kRecent> late;

  std::atomic<uint64_t> steps;   // completed writes
  std::atomic<uint64_t> enough;  // limit of `steps`, so that most blocks of an epoch stay unwritten
  std::atomic<bool> hold;        // pause between CloseEpoch() and Acknowledge()
  std::atomic<bool> at_closed;   // the pause was reached
  std::atomic<bool> finish;      // exit cleanly, with a closed epoch

  // Statistics.
  std::atomic<uint64_t> exact_maps, other_maps, over_reported, came_back, both_open, clean;
};

class OneProcess {
 public:
  OneProcess(World& world, const TrackerOptions& options, uint64_t seed)
      : world_(world), options_(options), random_(seed) {}

  void Run() {
    Recover();
    if (testing::Test::HasFailure()) return;
    std::vector<std::thread> writers;
    for (size_t t = 0; t < kThreads; ++t) {
      writers.emplace_back([this, t, seed = random_()] { Write(t, seed); });
    }
    while (!world_.finish && !testing::Test::HasFailure()) Snapshot(true);
    if (!testing::Test::HasFailure()) Snapshot(false);
    stop_ = true;
    for (std::thread& writer : writers) writer.join();
    const ChangeMap before = ValueOf(tracker_->Changes());
    ASSERT_OK(tracker_->Close());
    tracker_.reset();
    tracker_ = ValueOf(ChangeTracker::Recover(options_));
    EXPECT_EQ(SetOf(ValueOf(tracker_->Changes())), SetOf(before)) << "after a clean close";
    EXPECT_TRUE(tracker_->epochs().front().closed);
    ASSERT_OK(tracker_->Close());
    ++world_.clean;
  }

 private:
  static std::string NameOf(uint32_t epoch) { return absl::StrCat("s", epoch); }
  static uint32_t NumberOf(const std::string& name) {
    uint32_t number = 0;
    EXPECT_TRUE(absl::SimpleAtoi(name.substr(1), &number)) << name;
    return number;
  }

  void Recover() {
    absl::StatusOr<std::unique_ptr<ChangeTracker>> found = ChangeTracker::Recover(options_);
    if (absl::IsNotFound(found.status()) && world_.steps == 0) {
      found = ChangeTracker::Create(options_);
    }
    ASSERT_OK(found);
    tracker_ = *std::move(found);
    const std::vector<ChangeTracker::Epoch> epochs = tracker_->epochs();
    const uint32_t first = NumberOf(epochs[0].base);
    // Acknowledged epochs are gone; a returned but unacknowledged one is still there.
    ASSERT_GE(first, world_.acknowledged);
    if (world_.returned > world_.acknowledging) {
      ASSERT_TRUE(epochs[0].closed);
      ASSERT_EQ(first + 1, world_.returned);
    }
    // Writes of the killed process count in every epoch in which they may have been announced.
    for (std::atomic<uint64_t>& write : world_.in_flight) {
      if (write == 0) continue;
      for (auto& announced : world_.announced) announced[write - 1] = true;
      write = 0;
    }
    if (epochs[0].closed) {
      ++world_.came_back;
      CloseEpoch(first, epochs[0].exact);
    } else {
      // It covers everything since, including writes after the last snapshot.
      ExpectChanges(first, SetOf(ValueOf(tracker_->Changes())));
      if (epochs.size() == 2) {
        ++world_.both_open;
        if (world_.taken == first + 1) {
          CloseEpoch(first, epochs[0].exact);
        } else {
          ASSERT_OK(tracker_->CancelEpoch());
        }
      }
    }
    if (testing::Test::HasFailure()) return;
    ASSERT_EQ(tracker_->epochs().size(), 1u);
    const ChangeTracker::Epoch open = tracker_->epochs()[0];
    ASSERT_EQ(open.base, NameOf(world_.taken));
    const Set changes = SetOf(ValueOf(tracker_->Changes()));
    ExpectChanges(world_.taken, changes);
    crashed_ = world_.taken;
    for (size_t block = 0; block < kBlocks; ++block) {
      world_.late[crashed_ % kRecent][block] |= changes[block];
      world_.late[(crashed_ + 1) % kRecent][block] = changes[block];
    }
    world_.oldest = world_.newest = world_.taken.load();
  }

  void ExpectChanges(uint32_t since, const Set& map) {
    for (size_t block = 0; block < kBlocks; ++block) {
      if (world_.snapshots[since % kRecent][block] != world_.storage[block]) {
        ASSERT_TRUE(map[block]) << "block " << block << " changed since s" << since;
      }
    }
  }

  void Snapshot(bool acknowledge) {
    const uint32_t epoch = world_.oldest;
    if (random_() % 4 == 0) {
      ASSERT_OK(tracker_->Checkpoint());
    }
    world_.enough = world_.steps + 20;
    while (world_.steps < world_.enough && !testing::Test::HasFailure()) sched_yield();
    world_.enough += 40;  // during the snapshot
    for (std::atomic<bool>& block : world_.announced[(epoch + 1) % kRecent]) block = false;
    world_.late[(epoch + 2) % kRecent] = {};
    world_.newest = epoch + 1;
    ASSERT_OK(tracker_->OpenEpoch(NameOf(epoch + 1)));
    for (size_t block = 0; block < kBlocks; ++block) {
      world_.snapshots[(epoch + 1) % kRecent][block] = world_.storage[block];
    }
    world_.taken = epoch + 1;
    if (random_() % 8 == 0) {
      ASSERT_OK(tracker_->Checkpoint());
    }
    const bool exact = tracker_->epochs()[0].exact;
    // Opened after the epoch that saw the crash was acknowledged.
    if (epoch > crashed_ + 1) {
      ASSERT_TRUE(exact) << "epoch " << epoch << " after a crash in " << crashed_;
    }
    CloseEpoch(epoch, exact, acknowledge);
  }

  // Closes `epoch`, or asks for its map again, and checks the map.
  void CloseEpoch(uint32_t epoch, bool exact, bool acknowledge = true) {
    ASSERT_OK_AND_ASSIGN(const ChangeMap map, tracker_->CloseEpoch());
    ASSERT_EQ(map.identity().base, NameOf(epoch));
    ASSERT_EQ(map.identity().target, NameOf(epoch + 1));
    const Set blocks = SetOf(map);
    if (world_.returned == epoch + 1) {
      for (size_t block = 0; block < kBlocks; ++block) {
        ASSERT_EQ(blocks[block], world_.map[block]) << "block " << block << " of a closed epoch";
      }
    } else {
      Judge(epoch, exact, blocks);
      for (size_t block = 0; block < kBlocks; ++block) world_.map[block] = blocks[block];
      world_.returned = epoch + 1;
    }
    world_.oldest = epoch + 1;
    world_.at_closed = true;
    if (!acknowledge) return;
    while (world_.hold) sched_yield();
    world_.acknowledging = epoch + 1;
    ASSERT_OK(tracker_->Acknowledge(map.identity()));
    world_.acknowledged = epoch + 1;
    world_.at_closed = false;
  }

  void Judge(uint32_t epoch, bool exact, const Set& map) {
    Set allowed;
    for (const std::atomic<uint64_t>& write : world_.in_flight) {
      if (const uint64_t block = write; block != 0) allowed.set(block - 1);
    }
    for (size_t block = 0; block < kBlocks; ++block) {
      if (world_.announced[epoch % kRecent][block]) allowed.set(block);
      if (world_.snapshots[epoch % kRecent][block] !=
          world_.snapshots[(epoch + 1) % kRecent][block]) {
        ASSERT_TRUE(map[block]) << "block " << block << " changed in epoch " << epoch;
      }
    }
    if (exact) {
      ++world_.exact_maps;
    } else {
      ++world_.other_maps;
      world_.over_reported += (map & ~allowed).count();
      for (size_t block = 0; block < kBlocks; ++block) {
        if (world_.late[epoch % kRecent][block]) allowed.set(block);
      }
      allowed = RegionsOf(allowed);
    }
    const Set more = map & ~allowed;
    ASSERT_TRUE(more.none()) << "block " << more._Find_first() << " is in the map of epoch "
                             << epoch << ", exact: " << exact << ", and " << more.count() - 1
                             << " others";
  }

  void Write(size_t thread, uint64_t seed) {
    std::mt19937_64 random(seed);
    while (!stop_ && !testing::Test::HasFailure()) {
      if (world_.steps >= world_.enough) {
        sched_yield();
        continue;
      }
      const uint32_t first = world_.oldest;
      const size_t block = random() % kBlocks;
      const auto announce = [&] {
        for (uint32_t epoch = first; epoch <= world_.newest; ++epoch) {
          world_.announced[epoch % kRecent][block] = true;
        }
      };
      world_.in_flight[thread] = block + 1;
      announce();
      ASSERT_OK_AND_ASSIGN(TrackedWrite write, tracker_->Begin({block * kG, kG}));
      ++world_.storage[block];
      write.End();
      // An epoch that was opened meanwhile has the write, too.
      std::atomic_thread_fence(std::memory_order_seq_cst);
      announce();
      world_.in_flight[thread] = 0;
      ++world_.steps;
    }
  }

  World& world_;
  const TrackerOptions options_;
  std::mt19937_64 random_;
  std::unique_ptr<ChangeTracker> tracker_;
  std::atomic<bool> stop_{false};
  uint32_t crashed_ = 0;  // the epoch that was open when the last process ended
};

// Checks how the last process ended. `status` is from waitpid().
void ExpectKilledOrDone(int status) {
  if (WIFSIGNALED(status)) {
    ASSERT_EQ(WTERMSIG(status), SIGKILL);
  } else {
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }
}

TEST(TrackerCrashTest, KilledAtAnyMomentItUnderReportsNothing) {
  // Lost disk writes are tested elsewhere; this test is about the process.
  if (::access("/dev/shm", W_OK | X_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 1);
  const test::TempDir dir;
  void* const memory =
      ::mmap(nullptr, sizeof(World), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  World& world = *new (memory) World{};
  TrackerOptions options = {.geometry = {kBlocks * kG, kG}, .volume = "vol", .base = "s0"};
  options.directory = dir / "tracker";
  options.region_bytes = kRegion * kG;
  test::SeededRandom random(std::random_device{}());
  const int64_t rounds = 100 * test::TestScale();
  for (int64_t round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    world.at_closed = false;
    world.hold = round % 4 == 1;
    world.finish = false;
    const uint64_t begin = world.steps;
    const uint64_t seed = random();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      // Nothing may propagate into the parent's test.
      try {
        OneProcess(world, options, seed).Run();
      } catch (const std::exception& exception) {
        ADD_FAILURE() << exception.what();
      }
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    // When to kill: while an epoch is closed, after a number of writes, or never.
    int status = 0;
    pid_t ended = 0;
    const uint64_t target = begin + random() % 400;
    while (ended == 0 && (world.hold ? !world.at_closed : world.steps < target)) {
      ended = ::waitpid(child, &status, WNOHANG);
      sched_yield();
    }
    world.finish = round % 10 == 8;
    if (ended == 0 && !world.finish) ::kill(child, SIGKILL);
    if (ended == 0) ended = ::waitpid(child, &status, 0);
    ASSERT_EQ(ended, child);
    ExpectKilledOrDone(status);
  }
  EXPECT_GT(world.exact_maps, 0u);
  EXPECT_GT(world.other_maps, 0u);
  EXPECT_GT(world.over_reported, 0u);
  EXPECT_GE(world.came_back, static_cast<uint64_t>(rounds / 4));
  EXPECT_EQ(world.clean, static_cast<uint64_t>(rounds / 10));
  test::PrintFigure("tracker_kills", rounds);
  test::PrintFigure("tracker_kills_exact_maps", world.exact_maps.load());
  test::PrintFigure("tracker_kills_other_maps", world.other_maps.load());
  test::PrintFigure("tracker_kills_both_open", world.both_open.load());
  test::PrintFigure("tracker_kills_came_back", world.came_back.load());
  test::PrintFigure("tracker_kills_over_reported_blocks", world.over_reported.load());
  ::munmap(memory, sizeof(World));
}

// However the process ends, and however often the map is requested, it stays the same.
TEST(TrackerCrashTest, AClosedEpochStaysUntilItIsAcknowledged) {
  const test::TempDir dir;
  TrackerOptions options = {.geometry = {1000 * kG, kG}, .volume = "vol", .base = "monday"};
  options.directory = dir / "tracker";
  options.region_bytes = 4 * kG;
  const auto recover = [&] { return ValueOf(ChangeTracker::Recover(options)); };
  const ChangeMapIdentity tuesday = {"vol", "monday", "tuesday"};
  test::RunInChild([&] {
    const auto tracker = ValueOf(ChangeTracker::Create(options));
    EXPECT_EQ(tracker->Acknowledge(tuesday).code(), absl::StatusCode::kFailedPrecondition);
    ASSERT_OK(tracker->Mark({5 * kG, 1}));
    ASSERT_OK(tracker->OpenEpoch("tuesday"));
    EXPECT_EQ(tracker->Acknowledge(tuesday).code(), absl::StatusCode::kFailedPrecondition);
    ASSERT_OK(tracker->CloseEpoch());
    ASSERT_OK(tracker->Mark({7 * kG, 1}));
    _exit(testing::Test::HasFailure() ? 1 : 0);
  });
  for (const bool crash : {true, false, false}) {
    const auto stay = [&] {
      const auto tracker = recover();
      const std::vector<ChangeTracker::Epoch> epochs = tracker->epochs();
      ASSERT_EQ(epochs.size(), 2u);
      EXPECT_EQ(epochs[0].base, "monday");
      EXPECT_TRUE(epochs[0].closed);
      EXPECT_TRUE(epochs[0].exact);
      EXPECT_EQ(epochs[1].base, "tuesday");
      EXPECT_FALSE(epochs[1].closed);
      EXPECT_FALSE(epochs[1].exact);  // was open at the crash
      for (int i = 0; i < 2; ++i) {
        const ChangeMap monday = ValueOf(tracker->CloseEpoch());
        EXPECT_EQ(BlocksOf(monday), test::Blocks{5});
        EXPECT_EQ(monday.identity(), tuesday);
        ASSERT_OK(tracker->Checkpoint());
      }
      EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), (test::Blocks{4, 5, 6, 7}));
      // The closed epoch is not dropped by accident, and nothing it returned is taken back.
      const absl::Status open = tracker->OpenEpoch("wednesday");
      EXPECT_EQ(open.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_NE(open.message().find("Acknowledge()"), std::string::npos) << open;
      EXPECT_EQ(tracker->CancelEpoch().code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_EQ(tracker->Acknowledge({"vol", "monday", "wednesday"}).code(),
                absl::StatusCode::kInvalidArgument);
      if (crash) _exit(testing::Test::HasFailure() ? 1 : 0);
      ASSERT_OK(tracker->Close());
      EXPECT_EQ(tracker->Acknowledge(tuesday).code(), absl::StatusCode::kFailedPrecondition);
    };
    crash ? test::RunInChild(stay) : stay();
  }
  {
    const auto tracker = recover();
    ASSERT_OK(tracker->Acknowledge(tuesday));
    EXPECT_EQ(tracker->epochs().size(), 1u);
  }
  const auto tracker = recover();
  EXPECT_EQ(tracker->epochs().size(), 1u);
  EXPECT_EQ(tracker->CloseEpoch().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), (test::Blocks{4, 5, 6, 7}));
  ASSERT_OK(tracker->OpenEpoch("wednesday"));
  EXPECT_EQ(ValueOf(test::EndEpoch(*tracker)).identity(),
            (ChangeMapIdentity{"vol", "tuesday", "wednesday"}));
}

}  // namespace tracker_crash_test
}  // namespace cbt

// Trackers with a directory: what is there after a clean end and after a crash.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "cbt/change_tracker.h"
#include "tests/map/maps.h"
#include "tests/map/tracker/epochs.h"
#include "tests/support/child.h"
#include "tests/support/full_disk.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace persistent_tracker_test {

using test::Blocks;
using test::BlocksOf;
using test::HasBlocks;
using test::ValueOf;

constexpr uint64_t kG = 4096;

class PersistentTrackerTest : public testing::Test {
 protected:
  static constexpr uint64_t kBlocks = 1000;
  static constexpr uint64_t kRegion = 10;  // blocks

  PersistentTrackerTest() {
    options_ = {.geometry = {kBlocks * kG, kG},
                .volume = "vol",
                .base = "monday",
                .directory = dir_ / "tracker",
                .region_bytes = kRegion * kG};
  }

  std::unique_ptr<ChangeTracker> Recover() { return ValueOf(ChangeTracker::Recover(options_)); }

  static void Crash(const std::function<void()>& work) { test::RunInChild(work); }

  static Blocks Region(uint64_t region) {
    Blocks blocks;
    for (uint64_t b = region * kRegion; b < (region + 1) * kRegion; ++b) blocks.push_back(b);
    return blocks;
  }

  const test::TempDir dir_;
  TrackerOptions options_;
};

TEST_F(PersistentTrackerTest, ACleanCloseIsExact) {
  {
    ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(options_));
    ASSERT_OK(tracker->Mark({5 * kG, 1}));
    EXPECT_EQ(ChangeTracker::Recover(options_).status().code(), absl::StatusCode::kUnavailable);
    ASSERT_OK(tracker->Close());
    EXPECT_EQ(tracker->Mark({5 * kG, 1}).code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(ChangeTracker::Create(options_).status().code(), absl::StatusCode::kAlreadyExists);
  for (int i = 0; i < 3; ++i) {
    const auto tracker = Recover();
    EXPECT_TRUE(tracker->epochs().front().exact);
    EXPECT_EQ(tracker->epochs().front().base, "monday");
    EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), (Blocks{5}));
  }
}

TEST_F(PersistentTrackerTest, ACrashOverReportsRegionsAndNothingElse) {
  Crash([&] {
    const auto tracker = ValueOf(ChangeTracker::Create(options_));
    ASSERT_OK(tracker->Mark({5 * kG, 1}));
    ASSERT_OK(tracker->Mark({29 * kG, 2 * kG}));
    std::ignore = ValueOf(tracker->Begin({777 * kG, 1}));
    tracker->Mark({777 * kG, 1}).IgnoreError();
    _exit(0);
  });
  const auto tracker = Recover();
  EXPECT_FALSE(tracker->epochs().front().exact);
  Blocks want = Region(0);
  for (const uint64_t region : {2u, 3u, 77u}) {
    const Blocks more = Region(region);
    want.insert(want.end(), more.begin(), more.end());
  }
  EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), want);
}

TEST_F(PersistentTrackerTest, TheLastRegionMayBeShorter) {
  options_.geometry.capacity -= 5 * kG;
  Crash([&] {
    const auto tracker = ValueOf(ChangeTracker::Create(options_));
    ASSERT_OK(tracker->Mark({(kBlocks - 6) * kG, 1}));
    _exit(0);
  });
  Blocks want = Region(kBlocks / kRegion - 1);
  want.resize(kRegion - 5);
  EXPECT_EQ(BlocksOf(ValueOf(Recover()->Changes())), want);
}

// A write that begins in regions that the log has already and ends in new ones.
TEST_F(PersistentTrackerTest, EveryRegionThatAWriteTouchesComesBackFromACrash) {
  for (const uint64_t first : {0u, 2u, 7u, 50u}) {
    for (const uint64_t regions : {1u, 2u, 3u, 9u}) {
      const test::TempDir dir;
      options_.directory = dir / "tracker";
      Crash([&] {
        const auto tracker = ValueOf(ChangeTracker::Create(options_));
        for (const uint64_t known : {first, first + regions - 1}) {
          // Both ends are in the log, then only the first.
          if (regions % 2 == 0 && known != first) continue;
          ASSERT_OK(tracker->Mark({known * kRegion * kG, 1}));
        }
        const uint64_t begin = (first * kRegion + kRegion - 1) * kG;
        // includes one byte of the last region
        const uint64_t end = (first + regions - 1) * kRegion * kG + 1;
        ASSERT_OK(tracker->Mark({begin, regions == 1 ? kG : end - begin}));
        _exit(0);
      });
      Blocks want;
      for (uint64_t region = first; region < first + regions; ++region) {
        const Blocks more = Region(region);
        want.insert(want.end(), more.begin(), more.end());
      }
      EXPECT_EQ(BlocksOf(ValueOf(Recover()->Changes())), want) << first << " " << regions;
    }
  }
}

TEST_F(PersistentTrackerTest, ACheckpointBoundsWhatACrashOverReports) {
  Crash([&] {
    const auto tracker = ValueOf(ChangeTracker::Create(options_));
    ASSERT_OK(tracker->Mark({5 * kG, 1}));
    ASSERT_OK(tracker->Checkpoint());
    ASSERT_OK(tracker->Mark({25 * kG, 1}));
    _exit(0);
  });
  Blocks want = {5};
  const Blocks region = Region(2);
  want.insert(want.end(), region.begin(), region.end());
  EXPECT_EQ(BlocksOf(ValueOf(Recover()->Changes())), want);
  // Files do not accumulate.
  for (int i = 0; i < 5; ++i) ASSERT_OK(Recover()->Checkpoint());
  EXPECT_LE(dir_.Names("tracker").size(), 3u);
}

TEST_F(PersistentTrackerTest, ACrashInTheWindowGivesBothEpochsBack) {
  Crash([&] {
    const auto tracker = ValueOf(ChangeTracker::Create(options_));
    ASSERT_OK(tracker->Mark({5 * kG, 1}));
    const TrackedWrite in_flight = ValueOf(tracker->Begin({15 * kG, 1}));
    ASSERT_OK(tracker->Checkpoint());
    ASSERT_OK(tracker->OpenEpoch("tuesday"));
    ASSERT_OK(tracker->Mark({25 * kG, 1}));
    _exit(0);
  });
  {
    const auto tracker = Recover();
    ASSERT_EQ(tracker->epochs().size(), 2u);
    EXPECT_EQ(tracker->epochs()[1].base, "tuesday");
    EXPECT_FALSE(tracker->epochs()[0].closed);
    ASSERT_OK_AND_ASSIGN(const ChangeMap monday, tracker->CloseEpoch());
    EXPECT_TRUE(HasBlocks(monday, {5, 15, 25}));
    EXPECT_EQ(monday.identity(), (ChangeMapIdentity{"vol", "monday", "tuesday"}));
    EXPECT_TRUE(HasBlocks(ValueOf(tracker->Changes()), {15, 25}));
    EXPECT_FALSE(ValueOf(tracker->Changes())->Contains(5));
    ASSERT_OK(test::EndEpoch(*tracker));
    ASSERT_OK(tracker->Mark({35 * kG, 1}));
  }
  EXPECT_TRUE(HasBlocks(ValueOf(Recover()->Changes()), {15, 25, 35}));
}

// A block whose bit is set is not crash-safe yet: the region must be in the log first.
TEST_F(PersistentTrackerTest, AMarkThatCouldNotBeLoggedIsNoMarkForTheNextOne) {
  ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(options_));
  ASSERT_OK(tracker->Mark({5 * kG, 1}));
  std::optional<test::FullDisk> full(std::in_place);
  std::vector<absl::Status> marks;
  for (int i = 0; i < 3; ++i) marks.push_back(tracker->Mark({25 * kG, 1}));
  const absl::Status begun = tracker->Begin({25 * kG, 1}).status();
  const absl::Status logged = tracker->Mark({5 * kG, 1});
  full.reset();
  for (const absl::Status& mark : marks) EXPECT_FALSE(mark.ok());
  EXPECT_FALSE(begun.ok());
  EXPECT_OK(logged);
}

// The epoch that was open at a crash may count writes that never landed; the next one is exact
// again.
TEST_F(PersistentTrackerTest, EachEpochKeepsWhetherItIsExact) {
  Crash([&] {
    const auto tracker = ValueOf(ChangeTracker::Create(options_));
    ASSERT_OK(tracker->Mark({5 * kG, 1}));
    _exit(0);
  });
  {
    const auto tracker = Recover();
    ASSERT_OK(tracker->OpenEpoch("tuesday"));
    ASSERT_OK(test::EndEpoch(*tracker));
    ASSERT_OK(tracker->OpenEpoch("wednesday"));
    ASSERT_EQ(tracker->epochs().size(), 2u);
    ASSERT_FALSE(tracker->epochs()[0].exact);
    ASSERT_TRUE(tracker->epochs()[1].exact);
  }
  for (int i = 0; i < 2; ++i) {
    const auto tracker = Recover();
    ASSERT_EQ(tracker->epochs().size(), 2u);
    EXPECT_FALSE(tracker->epochs()[0].exact);
    EXPECT_TRUE(tracker->epochs()[1].exact);
  }
}

TEST_F(PersistentTrackerTest, AnEpochThatACrashLeftOpenCanBeCancelled) {
  Crash([&] {
    const auto tracker = ValueOf(ChangeTracker::Create(options_));
    ASSERT_OK(tracker->Mark({5 * kG, 1}));
    ASSERT_OK(tracker->OpenEpoch("tuesday"));
    ASSERT_OK(tracker->Mark({25 * kG, 1}));
    _exit(0);
  });
  {
    const auto tracker = Recover();
    ASSERT_EQ(tracker->epochs().size(), 2u);
    ASSERT_OK(tracker->CancelEpoch());
    EXPECT_TRUE(HasBlocks(ValueOf(tracker->Changes()), {5, 25}));
  }
  EXPECT_TRUE(HasBlocks(ValueOf(Recover()->Changes()), {5, 25}));
}

TEST_F(PersistentTrackerTest, OldEpochsGoWhenTheyAreAcknowledged) {
  {
    ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(options_));
    for (const char* day : {"tuesday", "wednesday", "thursday"}) {
      ASSERT_OK(tracker->Mark({5 * kG, 1}));
      ASSERT_OK(tracker->OpenEpoch(day));
      ASSERT_OK(tracker->Checkpoint());
      ASSERT_OK(test::EndEpoch(*tracker));
    }
    ASSERT_OK(tracker->OpenEpoch("friday"));
    ASSERT_OK(tracker->CancelEpoch());
    ASSERT_OK(tracker->Mark({7 * kG, 1}));
  }
  const auto tracker = Recover();
  ASSERT_EQ(tracker->epochs().size(), 1u);
  EXPECT_EQ(tracker->epochs()[0].base, "thursday");
  EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), (Blocks{7}));
}

TEST_F(PersistentTrackerTest, AnotherVolumeIsRefused) {
  { ASSERT_OK(ChangeTracker::Create(options_)); }
  TrackerOptions other = options_;
  other.volume = "other";
  EXPECT_EQ(ChangeTracker::Recover(other).status().code(), absl::StatusCode::kFailedPrecondition);
  other = options_;
  other.geometry.capacity += kG;
  EXPECT_EQ(ChangeTracker::Recover(other).status().code(), absl::StatusCode::kFailedPrecondition);
  other = options_;
  other.directory = dir_ / "none";
  EXPECT_EQ(ChangeTracker::Recover(other).status().code(), absl::StatusCode::kNotFound);
  other.directory = "";
  EXPECT_EQ(ChangeTracker::Recover(other).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PersistentTrackerTest, ManyThreadsWriteTheLogTogether) {
  Crash([&] {
    const auto tracker = ValueOf(ChangeTracker::Create(options_));
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (uint64_t b = t; b < kBlocks; b += 7) {
          ASSERT_OK(tracker->Begin({b * kG, kG}));
          if (b % 50 == 0) {
            ASSERT_OK(tracker->Checkpoint());
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    _exit(0);
  });
  std::set<uint64_t> want;
  for (uint64_t t = 0; t < 4; ++t) {
    for (uint64_t b = t; b < kBlocks; b += 7) want.insert(b);
  }
  EXPECT_TRUE(HasBlocks(ValueOf(Recover()->Changes()), want));
}

}  // namespace persistent_tracker_test
}  // namespace cbt

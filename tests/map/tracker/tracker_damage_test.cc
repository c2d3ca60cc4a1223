// Damaged tracker directories, and processes that ended with writes in flight. Recover() must
// return every write, or an error.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/change_tracker.h"
#include "tests/map/golden.h"
#include "tests/map/maps.h"
#include "tests/map/tracker/epochs.h"
#include "tests/support/child.h"
#include "tests/support/figures.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace tracker_damage_test {

using test::Blocks;
using test::BlocksOf;
using test::Files;
using test::ValueOf;
constexpr uint64_t kG = 4096;
constexpr uint64_t kBlocks = 100;

TrackerOptions OptionsAt(const std::string& directory) {
  return {.geometry = {kBlocks * kG, kG},
          .volume = "vol",
          .base = "monday",
          .directory = directory,
          .region_bytes = 2 * kG};
}

// Checks that `all` contains `some`; a failure names the first missing block.
testing::AssertionResult Holds(const Blocks& all, const Blocks& some) {
  for (const uint64_t block : some) {
    if (std::binary_search(all.begin(), all.end(), block)) continue;
    return testing::AssertionFailure()
           << "expected block " << block << ", not one of the " << all.size() << " that are known";
  }
  return testing::AssertionSuccess();
}

void Mark(ChangeTracker& tracker, const Blocks& blocks) {
  for (const uint64_t block : blocks) ASSERT_OK(tracker.Mark({block * kG, 1}));
}

// ---- damage

// The next byte to damage. The zeros between a log's names and its records need few probes.
size_t NextPlace(bool log, size_t at, size_t step) {
  constexpr size_t kNamesEnd = 200;
  constexpr size_t kChecksum = 12280;
  if (!log || at < kNamesEnd || at >= kChecksum) return at + step;
  return std::min(at + 997, kChecksum);
}

// A directory that a process left, and the writes since each snapshot that it may name.
struct State {
  std::string name;
  Files files;
  std::map<std::string, Blocks> since;
};

class TrackerDamageTest : public testing::Test {
 protected:
  // Thousands of directories are synced; lost disk writes are tested elsewhere.
  static void SetUpTestSuite() {
    if (::access("/dev/shm", W_OK | X_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 1);
  }

  // Every kind of directory that a tracker leaves, by a crash or by closing.
  std::vector<State> States() const {
    std::vector<State> states;
    std::map<std::string, Blocks> since = {{"monday", {}}};
    std::string closed;  // the epoch that takes no more writes
    std::unique_ptr<ChangeTracker> tracker;
    const auto keep = [&](const std::string& name) {
      states.push_back({name, test::FilesOf(directory_), since});
    };
    const auto write = [&](uint64_t block) {
      Mark(*tracker, {block});
      for (auto& [base, blocks] : since) {
        if (base != closed) blocks.push_back(block);
      }
    };
    tracker = ValueOf(ChangeTracker::Create(OptionsAt(directory_)));
    keep("created");
    write(5);
    write(31);
    keep("marked");
    EXPECT_OK(tracker->Checkpoint());
    keep("after a checkpoint");
    write(40);
    keep("marked after a checkpoint");
    EXPECT_OK(tracker->OpenEpoch("tuesday"));
    since["tuesday"] = {};
    write(50);
    keep("in the window");
    EXPECT_OK(tracker->Checkpoint());
    write(55);
    keep("in the window, after a checkpoint");
    EXPECT_OK(tracker->CloseEpoch());
    closed = "monday";
    write(60);
    keep("after an epoch");
    EXPECT_OK(tracker->Checkpoint());
    write(65);
    keep("after an epoch and a checkpoint");
    EXPECT_OK(tracker->Close());
    keep("closed after an epoch");
    tracker.reset();
    // A process that starts after a crash leaves late writes.
    test::WriteFiles(states[states.size() - 2].files, crashed_);
    tracker = ValueOf(ChangeTracker::Recover(OptionsAt(crashed_)));
    const auto keep_crashed = [&](const std::string& name) {
      states.push_back({name, test::FilesOf(crashed_), since});
    };
    keep_crashed("recovered");
    write(70);
    EXPECT_OK(test::EndEpoch(*tracker));
    EXPECT_OK(tracker->OpenEpoch("wednesday"));
    since.erase("monday");
    since["wednesday"] = {};
    write(75);
    keep_crashed("in the window, after a crash");
    EXPECT_OK(tracker->CloseEpoch());
    closed = "tuesday";
    write(80);
    EXPECT_OK(tracker->Close());
    keep_crashed("closed, after a crash");
    return states;
  }

  // Recovers the directory with other files: it must be refused, or return every write.
  void Check(const State& state, const Files& files, const std::string& what) {
    ++directories_;
    std::filesystem::remove_all(damaged_);
    test::WriteFiles(files, damaged_);
    const auto tracker = ChangeTracker::Recover(OptionsAt(damaged_));
    if (!tracker.ok()) {
      ++refused_;
      // A caller that gets NotFound creates a new tracker, which has no history. That is safe where
      // only an empty first log is left: nothing was announced.
      const bool empty = files.empty() || (state.name == "created" && !files.contains("TRACKER"));
      EXPECT_EQ(absl::IsNotFound(tracker.status()), empty)
          << state.name << ", " << what << ": " << tracker.status();
      return;
    }
    for (const ChangeTracker::Epoch& epoch : (*tracker)->epochs()) {
      const auto since = state.since.find(epoch.base);
      ASSERT_NE(since, state.since.end()) << state.name << ", " << what << ": " << epoch.base;
      const Blocks known =
          BlocksOf(ValueOf(epoch.closed ? (*tracker)->CloseEpoch() : (*tracker)->Changes()));
      const testing::AssertionResult holds = Holds(known, since->second);
      under_reported_ += holds ? 0 : 1;
      EXPECT_TRUE(holds) << state.name << ", " << what << ": since " << epoch.base;
      if (epoch.exact) {
        EXPECT_EQ(known, since->second) << state.name << ", " << what << ": reported as exact";
      }
      if (!epoch.closed) break;  // Changes() starts at the oldest open one
    }
  }

  void TearDown() override {
    EXPECT_GT(directories_, 0);
    test::PrintFigure("tracker_folders", directories_);
    test::PrintFigure("tracker_folders_refused", refused_);
    test::PrintFigure("tracker_folders_under_reported", under_reported_);
  }

  const test::TempDir dir_;
  const std::string directory_ = dir_ / "tracker";
  const std::string crashed_ = dir_ / "crashed";
  const std::string damaged_ = dir_ / "damaged";
  int64_t directories_ = 0;
  int64_t refused_ = 0;
  int64_t under_reported_ = 0;
};

TEST_F(TrackerDamageTest, EachStateIsRecoveredAsItIs) {
  for (const State& state : States()) {
    Check(state, state.files, "as it is");
    EXPECT_EQ(refused_, 0) << state.name;
  }
}

// One or two files are missing. Nothing may be concluded from an absent file.
TEST_F(TrackerDamageTest, AttackBAFileThatIsMissingIsNoCleanClose) {
  for (const State& state : States()) {
    for (const auto& [first, first_bytes] : state.files) {
      Files less = state.files;
      less.erase(first);
      Check(state, less, first + " removed");
      for (const auto& [second, second_bytes] : state.files) {
        if (second <= first) continue;
        Files two_less = less;
        two_less.erase(second);
        Check(state, two_less, absl::StrCat(first, " and ", second, " removed"));
      }
      less[first] = "";
      Check(state, less, first + " emptied");
    }
  }
  EXPECT_EQ(refused_, directories_);
}

TEST_F(TrackerDamageTest, AttackCAZeroedSectorOrRecordIsNoEmptyPlace) {
  for (const State& state : States()) {
    for (const auto& [name, bytes] : state.files) {
      const bool log = name.ends_with(".log");
      for (const size_t size : {size_t{16}, size_t{512}, size_t{4096}}) {
        // The zeros between a log's names and its records need no second pass.
        for (size_t at = log && size == 16 ? 12288 : 0; at < bytes.size(); at += size) {
          Files damaged = state.files;
          const size_t count = std::min(size, bytes.size() - at);
          damaged[name].replace(at, count, count, '\0');
          if (damaged[name] == bytes) continue;
          Check(state, damaged, absl::StrCat(size, " bytes of ", name, " zeroed at ", at));
        }
      }
    }
  }
}

TEST_F(TrackerDamageTest, AttackDNoFileStandsForAnother) {
  const std::vector<State> states = States();
  for (const State& state : states) {
    for (const auto& [name, bytes] : state.files) {
      // Files of its own directory, and of all earlier states.
      for (const State& other : states) {
        for (const auto& [source, copied] : other.files) {
          if (copied == bytes || name == "TRACKER" || source == name) continue;
          Files damaged = state.files;
          damaged[name] = copied;
          Check(state, damaged, absl::StrCat(source, " of ", other.name, " over ", name));
        }
        if (&other == &state) break;
      }
    }
  }
  EXPECT_EQ(refused_, directories_);
}

// For example, of a tracker of the same volume that started at the same snapshot in the same
// directory.
TEST_F(TrackerDamageTest, AttackDALogOfAnotherTrackerIsRefused) {
  const auto leave = [this](const Blocks& marked) {
    std::filesystem::remove_all(directory_);
    const auto tracker = ValueOf(ChangeTracker::Create(OptionsAt(directory_)));
    Mark(*tracker, marked);
    return test::FilesOf(directory_);
  };
  const Files before = leave({5});
  State state{"marked", leave({31}), {{"monday", {31}}}};
  Files damaged = state.files;
  damaged["regions-1.log"] = before.at("regions-1.log");
  Check(state, damaged, "the log of an earlier tracker");
  EXPECT_EQ(refused_, 1);
}

TEST_F(TrackerDamageTest, AFlippedBitIsFound) {
  for (const State& state : States()) {
    for (const auto& [name, bytes] : state.files) {
      const bool log = name.ends_with(".log");
      for (size_t at = 0; at < bytes.size(); at = NextPlace(log, at, 7)) {
        Files damaged = state.files;
        damaged[name][at] = static_cast<char>(damaged[name][at] ^ (1 << at % 8));
        Check(state, damaged, absl::StrCat("a bit of ", name, " at ", at));
      }
    }
  }
}

TEST_F(TrackerDamageTest, AnyShorterFileIsFound) {
  for (const State& state : States()) {
    for (const auto& [name, bytes] : state.files) {
      const bool log = name.ends_with(".log");
      for (size_t size = 0; size < bytes.size(); size = NextPlace(log, size, 13)) {
        Files damaged = state.files;
        damaged[name].resize(size);
        Check(state, damaged, absl::StrCat(name, " cut at ", size));
      }
    }
  }
}

// ---- late writes

class LateWritesTest : public testing::Test {
 protected:
  std::unique_ptr<ChangeTracker> Recover() {
    return ValueOf(ChangeTracker::Recover(OptionsAt(directory_)));
  }

  // Opens epoch `name`, closes the one before it and returns its changes.
  static Blocks Turn(ChangeTracker& tracker, const std::string& name) {
    EXPECT_OK(tracker.OpenEpoch(name));
    return BlocksOf(ValueOf(test::EndEpoch(tracker)));
  }

  const test::TempDir dir_;
  const std::string directory_ = dir_ / "tracker";
};

TEST_F(LateWritesTest, AttackFAWriteThatLandsAfterTheNextSnapshotIsInTheEpochThatFollows) {
  test::RunInChild([&] {
    const auto tracker = ValueOf(ChangeTracker::Create(OptionsAt(directory_)));
    const auto write = tracker->Begin({5 * kG, 1});
    _exit(write.ok() ? 0 : 1);
  });
  const auto tracker = Recover();
  EXPECT_TRUE(Holds(Turn(*tracker, "tuesday"), {5}));
  // It may land now, after Tuesday's snapshot.
  EXPECT_FALSE(tracker->epochs()[0].exact);
  Mark(*tracker, {50});
  EXPECT_TRUE(Holds(BlocksOf(ValueOf(tracker->Changes())), {5, 50}));
  EXPECT_TRUE(Holds(Turn(*tracker, "wednesday"), {5, 50}));
  // But not forever.
  EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), Blocks{});
  EXPECT_TRUE(tracker->epochs()[0].exact);
  Mark(*tracker, {7});
  EXPECT_EQ(Turn(*tracker, "thursday"), Blocks{7});
}

// A checkpoint moved it from the region log into the map.
TEST_F(LateWritesTest, AttackFACheckpointForgetsNoWriteInFlight) {
  test::RunInChild([&] {
    const auto tracker = ValueOf(ChangeTracker::Create(OptionsAt(directory_)));
    const auto write = tracker->Begin({5 * kG, 1});
    ASSERT_OK(tracker->Checkpoint());
    _exit(write.ok() ? 0 : 1);
  });
  const auto tracker = Recover();
  EXPECT_EQ(Turn(*tracker, "tuesday"), Blocks{5});
  EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), Blocks{5});
}

// Nothing new is marked, and still the log must record that a write is in flight.
TEST_F(LateWritesTest, AttackFAWriteToWhatTheCheckpointHasIsLateToo) {
  test::RunInChild([&] {
    const auto tracker = ValueOf(ChangeTracker::Create(OptionsAt(directory_)));
    ASSERT_OK(tracker->Mark({5 * kG, 1}));
    ASSERT_OK(tracker->Checkpoint());
    const auto write = tracker->Begin({5 * kG, 1});
    _exit(write.ok() ? 0 : 1);
  });
  const auto tracker = Recover();
  EXPECT_TRUE(Holds(Turn(*tracker, "tuesday"), {5}));
  EXPECT_TRUE(Holds(BlocksOf(ValueOf(tracker->Changes())), {5}));
}

TEST_F(LateWritesTest, AttackFInTheWindowOfTwoEpochsItIsInTheThird) {
  test::RunInChild([&] {
    const auto tracker = ValueOf(ChangeTracker::Create(OptionsAt(directory_)));
    const auto before = tracker->Begin({5 * kG, 1});
    ASSERT_OK(tracker->OpenEpoch("tuesday"));
    const auto within = tracker->Begin({51 * kG, 1});
    _exit(before.ok() && within.ok() ? 0 : 1);
  });
  const auto tracker = Recover();
  ASSERT_OK(test::EndEpoch(*tracker));
  EXPECT_TRUE(Holds(Turn(*tracker, "wednesday"), {5, 51}));
  EXPECT_TRUE(Holds(Turn(*tracker, "thursday"), {5, 51}));
  EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), Blocks{});
}

TEST_F(LateWritesTest, AttackFACleanCloseAndACancelledEpochForgetNothing) {
  test::RunInChild([&] {
    const auto tracker = ValueOf(ChangeTracker::Create(OptionsAt(directory_)));
    const auto write = tracker->Begin({5 * kG, 1});
    _exit(write.ok() ? 0 : 1);
  });
  ASSERT_OK(Recover()->Close());
  {
    const auto tracker = Recover();
    ASSERT_OK(tracker->OpenEpoch("tuesday"));
    ASSERT_OK(tracker->CancelEpoch());
    EXPECT_TRUE(Holds(Turn(*tracker, "wednesday"), {5}));
    ASSERT_OK(tracker->Close());
  }
  const auto tracker = Recover();
  EXPECT_TRUE(Holds(Turn(*tracker, "thursday"), {5}));
  EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), Blocks{});
}

// The second process is killed too, after each of its steps.
TEST_F(LateWritesTest, AttackFASecondCrashForgetsNothing) {
  for (int steps = 0; steps <= 4; ++steps) {
    std::filesystem::remove_all(directory_);
    test::RunInChild([&] {
      const auto tracker = ValueOf(ChangeTracker::Create(OptionsAt(directory_)));
      const auto write = tracker->Begin({5 * kG, 1});
      _exit(write.ok() ? 0 : 1);
    });
    test::RunInChild([&] {
      const auto tracker = Recover();
      if (steps >= 1) {
        ASSERT_OK(tracker->OpenEpoch("tuesday"));
      }
      if (steps >= 2) {
        ASSERT_OK(tracker->CloseEpoch());
      }
      if (steps >= 3) {
        ASSERT_OK(tracker->Checkpoint());
      }
      if (steps >= 4) {
        ASSERT_OK(tracker->Mark({50 * kG, 1}));
      }
      _exit(testing::Test::HasFailure() ? 1 : 0);
    });
    const auto tracker = Recover();
    if (tracker->epochs().size() == 2) {
      EXPECT_TRUE(Holds(BlocksOf(ValueOf(test::EndEpoch(*tracker))), {5})) << steps;
    }
    EXPECT_TRUE(Holds(Turn(*tracker, "wednesday"), {5})) << steps;
    EXPECT_TRUE(Holds(Turn(*tracker, "thursday"), {5})) << steps;
    EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), Blocks{}) << steps;
  }
}

// Closed while a write is in flight: treated as a crash.
TEST_F(LateWritesTest, AttackFAWriteInFlightWhenTheTrackerClosesIsLate) {
  {
    ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(OptionsAt(directory_)));
    ASSERT_OK_AND_ASSIGN(TrackedWrite write, tracker->Begin({5 * kG, 1}));
    ASSERT_OK(tracker->Close());
    write.End();
  }
  const auto tracker = Recover();
  EXPECT_TRUE(Holds(Turn(*tracker, "tuesday"), {5}));
  EXPECT_TRUE(Holds(Turn(*tracker, "wednesday"), {5}));
  EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), Blocks{});
}

}  // namespace tracker_damage_test
}  // namespace cbt

// Only one process may change the directory of a tracker or a chain, and a path alone does not
// identify it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/process_mark.h"
#include "cbt/change_chain.h"
#include "cbt/change_tracker.h"
#include "tests/map/maps.h"
#include "tests/map/tracker/epochs.h"
#include "tests/support/child.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace claim_test {

using test::Blocks;
using test::BlocksOf;
using test::ValueOf;
using Code = absl::StatusCode;

constexpr uint64_t kG = 4096;
constexpr VolumeGeometry kVolume = {1000 * kG, kG};

TrackerOptions OptionsAt(const std::string& directory) {
  return {.geometry = kVolume,
          .volume = "vol",
          .base = "monday",
          .directory = directory,
          .region_bytes = kG};
}

void ExpectCopied(const absl::Status& status) {
  EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("fork()"), std::string::npos) << status;
}

// Every call fails, and the destructor closes and removes nothing.
void ExpectDead(std::unique_ptr<ChangeTracker> copy) {
  ExpectCopied(copy->Mark({9 * kG, 1}));
  ExpectCopied(copy->Mark({5 * kG, 1}));  // marked already
  ExpectCopied(copy->Begin({9 * kG, 1}).status());
  ExpectCopied(copy->OpenEpoch("wednesday"));
  ExpectCopied(copy->CloseEpoch().status());
  ExpectCopied(copy->CancelEpoch());
  ExpectCopied(copy->Changes().status());
  ExpectCopied(copy->Checkpoint());
  ExpectCopied(copy->Close());
  EXPECT_TRUE(copy->epochs().empty());
}

class ClaimTest : public testing::Test {
 protected:
  ~ClaimTest() override { std::filesystem::current_path("/"); }

  // What a process finds that starts after this one crashed.
  Blocks AfterACrash(const std::string& directory) const {
    const std::string copy = dir_ / "copy";
    std::filesystem::remove_all(copy);
    std::filesystem::copy(directory, copy);
    const auto tracker = ChangeTracker::Recover(OptionsAt(copy));
    EXPECT_OK(tracker);
    return tracker.ok() ? BlocksOf(ValueOf((*tracker)->Changes())) : Blocks{};
  }

  const test::TempDir dir_;
  const std::string directory_ = dir_ / "tracker";
};

TEST_F(ClaimTest, AttackAACopyOfATrackerWritesNothing) {
  ASSERT_OK_AND_ASSIGN(auto tracker, ChangeTracker::Create(OptionsAt(directory_)));
  ASSERT_OK(tracker->Mark({5 * kG, 1}));
  test::RunInChild([&] { ExpectDead(std::move(tracker)); });
  ASSERT_OK(tracker->Mark({7 * kG, 1}));
  EXPECT_EQ(AfterACrash(directory_), (Blocks{5, 7}));
  ASSERT_OK(tracker->OpenEpoch("tuesday"));
  test::RunInChild([&] { ExpectDead(std::move(tracker)); });
  EXPECT_EQ(BlocksOf(ValueOf(test::EndEpoch(*tracker))), (Blocks{5, 7}));
}

TEST_F(ClaimTest, AttackAACopyOfATrackerInMemoryMarksNothing) {
  ASSERT_OK_AND_ASSIGN(auto tracker, ChangeTracker::Create(OptionsAt("")));
  ASSERT_OK(tracker->Mark({5 * kG, 1}));
  test::RunInChild([&] { ExpectDead(std::move(tracker)); });
  EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), (Blocks{5}));
}

// A write in flight during the fork belongs to the process that announced it.
TEST_F(ClaimTest, AttackAACopyEndsNoWrite) {
  ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(OptionsAt(directory_)));
  ASSERT_OK_AND_ASSIGN(std::optional<TrackedWrite> write, tracker->Begin({5 * kG, 1}));
  test::RunInChild([&] { write.reset(); });
  ASSERT_OK(tracker->OpenEpoch("tuesday"));
  ASSERT_OK(test::EndEpoch(*tracker));
  EXPECT_EQ(BlocksOf(ValueOf(tracker->Changes())), (Blocks{5}));
  write->End();
}

// As daemons do: the process that opened it exits, the copy continues.
TEST_F(ClaimTest, AttackAADaemonRecoversAfterItsParentHasGone) {
  int ready[2];
  int result[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(result), 0);
  test::RunInChild([&] {
    auto tracker = ValueOf(ChangeTracker::Create(OptionsAt(directory_)));
    ASSERT_OK(tracker->Mark({5 * kG, 1}));
    close(ready[1]);
    int parent_lives[2];
    ASSERT_EQ(pipe(parent_lives), 0);
    if (fork() != 0) {
      close(parent_lives[0]);
      tracker.reset();  // as exit() destroys a static object
      return;
    }
    close(parent_lives[1]);
    char byte = 0;
    EXPECT_EQ(read(parent_lives[0], &byte, 1), 0);
    ExpectCopied(tracker->Mark({6 * kG, 1}));
    // The parent's lock ended with the parent, though the copy still has its descriptors.
    const auto own = ChangeTracker::Recover(OptionsAt(directory_));
    EXPECT_OK(own);
    bool good = own.ok() && BlocksOf(ValueOf((*own)->Changes())) == Blocks{5};
    tracker.reset();
    good = good && (*own)->Mark({7 * kG, 1}).ok() && !testing::Test::HasFailure();
    byte = good ? 'y' : 'n';
    EXPECT_EQ(write(result[1], &byte, 1), 1);
    _exit(0);
  });
  close(ready[1]);
  close(result[1]);
  char byte = 0;
  ASSERT_EQ(read(result[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  // Until the daemon is gone; this process cannot wait for it.
  while (read(result[0], &byte, 1) > 0) {
  }
  const auto tracker = ChangeTracker::Recover(OptionsAt(directory_));
  ASSERT_OK(tracker);
  EXPECT_EQ(BlocksOf(ValueOf((*tracker)->Changes())), (Blocks{5, 7}));
}

#ifndef __SANITIZE_THREAD__  // which loses track of a process not made by fork()
// Not by fork(), so that no C library handler runs.
TEST_F(ClaimTest, AttackAACopyMadeByTheKernelAloneMarksNothing) {
  ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(OptionsAt("")));
  const long child = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (child == 0) _exit(tracker->Mark({5 * kG, 1}).ok() ? 1 : 0);
  int status = 0;
  ASSERT_EQ(waitpid(static_cast<pid_t>(child), &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_OK(tracker->Mark({5 * kG, 1}));
}
#endif

TEST(ProcessMarkTest, EachCopyIsAnotherProcess) {
  const ProcessMark mark;
  EXPECT_TRUE(mark.IsOurs());
  test::RunInChild([&] {
    EXPECT_FALSE(mark.IsOurs());
    const ProcessMark own;
    EXPECT_TRUE(own.IsOurs());
    EXPECT_FALSE(mark.IsOurs());
    test::RunInChild([&] {
      EXPECT_FALSE(mark.IsOurs());
      EXPECT_FALSE(own.IsOurs());
      const ProcessMark third;
      EXPECT_TRUE(third.IsOurs());
      EXPECT_FALSE(own.IsOurs());
    });
  });
  EXPECT_TRUE(mark.IsOurs());
}

// ---- chains

ChangeMap MapBetween(const std::string& base, const std::string& target) {
  ChangeMap map = test::MapOf({1}, kVolume);
  map.set_identity({"vol", base, target});
  return map;
}

TEST_F(ClaimTest, AttackAACopyOfAChainChangesNothing) {
  const std::string directory = dir_ / "chain";
  ASSERT_OK_AND_ASSIGN(auto chain,
                       ChangeChain::Create(directory, "vol", kG, {"s0", kVolume.capacity}));
  ASSERT_OK(chain->Append(MapBetween("s0", "s1")));
  ASSERT_OK_AND_ASSIGN(const auto reader, ChangeChain::Open(directory, ChangeChain::Access::kRead));
  test::RunInChild([&] {
    ExpectCopied(chain->Append(MapBetween("s1", "s2")));
    ExpectCopied(chain->Remove("s0"));
    ExpectCopied(chain->Delta("s0", "s1").status());
    ExpectCopied(chain->Verify());
    chain.reset();
    // A reader has nothing that another process could change.
    EXPECT_EQ(BlocksOf(*ValueOf(reader->Delta("s0", "s1"))), Blocks{1});
    // Nor did the copy take the lock from its holder.
    EXPECT_EQ(ChangeChain::Open(directory, ChangeChain::Access::kChange).status().code(),
              Code::kUnavailable);
  });
  ASSERT_OK(chain->Append(MapBetween("s1", "s3")));
  chain.reset();
  ASSERT_OK_AND_ASSIGN(const auto again, ChangeChain::Open(directory, ChangeChain::Access::kRead));
  EXPECT_EQ(again->snapshots().size(), 3u);
  EXPECT_TRUE(again->Contains("s3"));
  EXPECT_OK(again->Verify());
}

// ---- paths

TEST_F(ClaimTest, AttackEWhereTheWorkingDirectoryIsDoesNotMatter) {
  std::filesystem::create_directories(dir_ / "elsewhere/tracker");
  std::filesystem::create_directories(dir_ / "elsewhere/chain");
  std::filesystem::current_path(dir_.path());
  ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(OptionsAt("tracker")));
  ASSERT_OK_AND_ASSIGN(const auto chain,
                       ChangeChain::Create("chain", "vol", kG, {"s0", kVolume.capacity}));
  std::filesystem::current_path(dir_ / "elsewhere");
  ASSERT_OK(tracker->Mark({5 * kG, 1}));
  ASSERT_OK(tracker->Checkpoint());
  ASSERT_OK(tracker->OpenEpoch("tuesday"));
  ASSERT_OK(tracker->Mark({7 * kG, 1}));
  EXPECT_EQ(BlocksOf(ValueOf(test::EndEpoch(*tracker))), (Blocks{5, 7}));
  ASSERT_OK(tracker->Checkpoint());
  ASSERT_OK(chain->Append(MapBetween("s0", "s1")));
  EXPECT_EQ(BlocksOf(*ValueOf(chain->Delta("s0", "s1"))), Blocks{1});
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "elsewhere/tracker"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "elsewhere/chain"));
  EXPECT_EQ(AfterACrash(directory_), Blocks{7});
}

TEST_F(ClaimTest, AttackENoFileThatIsRemovedLetsASecondOneIn) {
  ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(OptionsAt(directory_)));
  const std::string other = dir_ / "chain";
  ASSERT_OK_AND_ASSIGN(const auto chain,
                       ChangeChain::Create(other, "vol", kG, {"s0", kVolume.capacity}));
  std::filesystem::remove(directory_ + "/LOCK");
  std::filesystem::remove(other + "/LOCK");
  EXPECT_EQ(ChangeTracker::Recover(OptionsAt(directory_)).status().code(), Code::kUnavailable);
  EXPECT_EQ(ChangeChain::Open(other, ChangeChain::Access::kChange).status().code(),
            Code::kUnavailable);
  test::RunInChild([&] {
    EXPECT_EQ(ChangeTracker::Recover(OptionsAt(directory_)).status().code(), Code::kUnavailable);
  });
}

TEST_F(ClaimTest, AttackEADirectoryThatIsMovedIsStillTheSame) {
  ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(OptionsAt(directory_)));
  const std::string moved = dir_ / "moved";
  std::filesystem::rename(directory_, moved);
  EXPECT_EQ(ChangeTracker::Recover(OptionsAt(moved)).status().code(), Code::kUnavailable);
  ASSERT_OK(tracker->Mark({5 * kG, 1}));
  ASSERT_OK(tracker->Checkpoint());
  ASSERT_OK(tracker->Mark({7 * kG, 1}));
  EXPECT_EQ(AfterACrash(moved), (Blocks{5, 7}));
}

// Marks would go into a file that can no longer be opened.
TEST_F(ClaimTest, AttackEALogThatWasRemovedTakesNoMarks) {
  ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(OptionsAt(directory_)));
  ASSERT_OK(tracker->Mark({5 * kG, 1}));
  std::filesystem::remove(directory_ + "/regions-1.log");
  EXPECT_EQ(tracker->Mark({7 * kG, 1}).code(), Code::kDataLoss);
  EXPECT_EQ(tracker->Mark({8 * kG, 1}).code(), Code::kDataLoss);
  ASSERT_OK(tracker->Checkpoint());
  ASSERT_OK(tracker->Mark({8 * kG, 1}));
  const Blocks known = AfterACrash(directory_);
  EXPECT_EQ(known, (Blocks{5, 7, 8}));
}

// Renamed away and replaced by a copy.
TEST_F(ClaimTest, AttackEALogThatWasReplacedTakesNoMarks) {
  ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(OptionsAt(directory_)));
  ASSERT_OK(tracker->Mark({5 * kG, 1}));
  const std::string log = directory_ + "/regions-1.log";
  std::filesystem::rename(log, dir_ / "away");
  std::filesystem::copy(dir_ / "away", log);
  EXPECT_EQ(tracker->Mark({7 * kG, 1}).code(), Code::kDataLoss);
  ASSERT_OK(tracker->Checkpoint());
  EXPECT_EQ(AfterACrash(directory_), (Blocks{5, 7}));
}

TEST_F(ClaimTest, AttackEADirectoryThatWasRemovedTakesNoCheckpoint) {
  ASSERT_OK_AND_ASSIGN(const auto tracker, ChangeTracker::Create(OptionsAt(directory_)));
  std::filesystem::remove_all(directory_);
  EXPECT_EQ(tracker->Mark({7 * kG, 1}).code(), Code::kDataLoss);
  EXPECT_FALSE(tracker->Checkpoint().ok());
  EXPECT_FALSE(tracker->OpenEpoch("tuesday").ok());
  EXPECT_FALSE(tracker->Close().ok());
}

}  // namespace claim_test
}  // namespace cbt

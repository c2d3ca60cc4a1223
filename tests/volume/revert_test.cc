// A volume goes back to a snapshot.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/units.h"
#include "programs/volume/control.h"
#include "programs/volume/tracked_volume.h"
#include "tests/support/child.h"
#include "tests/support/files.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"
#include "tests/volume/volume_model.h"

namespace cbt::volume {
namespace revert_test {

using reference::Ranges;
using test::ValueOf;
using test::VolumeModel;
using namespace units;

constexpr size_t kG = 4096;

// Of the process: a write past it fails.
void LimitFiles(rlim_t bytes) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
}

class RevertTest : public testing::Test {
 protected:
  std::unique_ptr<TrackedVolume> Open() const {
    return ValueOf(TrackedVolume::Open(directory_, {.always_copy = true}));
  }
  // Two snapshots, and writes after them; the volume has grown since the first, whose size is no
  // multiple of the granularity.
  std::unique_ptr<TrackedVolume> Make() const {
    test::RequireOk(TrackedVolume::Create(directory_, 8_MiB + 512));
    auto volume = Open();
    EXPECT_OK(Fill(*volume, 0, 2_MiB, 1));
    EXPECT_OK(volume->TakeSnapshot("monday"));
    EXPECT_OK(Fill(*volume, 1_MiB, 2 * kG, 2));
    EXPECT_OK(volume->Resize(16_MiB));
    EXPECT_OK(Fill(*volume, 8_MiB + 512, 1, 2));
    EXPECT_OK(Fill(*volume, 12_MiB, kG, 2));
    EXPECT_OK(volume->TakeSnapshot("tuesday"));
    EXPECT_TRUE(volume->WaitForCopies(60));
    EXPECT_OK(Fill(*volume, 6_MiB, kG, 3));
    EXPECT_OK(volume->Trim({0, kG}, Durability::kCached));
    return volume;
  }
  static absl::Status Fill(TrackedVolume& volume, uint64_t offset, size_t length, uint8_t value) {
    return volume.Write(offset, std::vector<uint8_t>(length, value), Durability::kCached);
  }
  static std::vector<uint8_t> BytesOf(const TrackedVolume& volume) {
    std::vector<uint8_t> bytes(volume.capacity());
    EXPECT_OK(volume.Read(0, bytes));
    return bytes;
  }
  static std::vector<uint8_t> BytesOf(const TrackedVolume& volume, const std::string& snapshot) {
    auto bytes = test::ReadFile<std::vector<uint8_t>>(ValueOf(volume.SnapshotPath(snapshot)));
    bytes.resize(volume.capacity());
    return bytes;
  }
  static std::vector<uint8_t> Monday() {
    std::vector<uint8_t> bytes(16_MiB);
    std::fill_n(bytes.begin(), 2_MiB, uint8_t{1});
    return bytes;
  }
  static Ranges DeltaOf(const TrackedVolume& volume, const std::string& base,
                        const std::string& target) {
    return ValueOf(test::Drain(*ValueOf(volume.Delta(base, target))));
  }
  // No byte that differs is missing, from any base.
  static void CheckDeltas(const TrackedVolume& volume, const std::string& target) {
    for (const SnapshotInfo& base : volume.snapshots()) {
      EXPECT_TRUE(test::Covers(
          DeltaOf(volume, base.id, target),
          VolumeModel::Differing(BytesOf(volume, base.id), BytesOf(volume, target), kG), kG))
          << "from " << base.id << " to " << target;
    }
  }
  bool IsUnderWay() const { return std::filesystem::exists(directory_ + "/REVERT"); }

  const test::TempDir scratch_;
  const std::string directory_ = scratch_ / "v";
};

TEST_F(RevertTest, MCDeltasOverItAreExact) {
  const auto volume = Make();
  ASSERT_OK(volume->Revert("monday"));
  EXPECT_TRUE(BytesOf(*volume) == Monday());
  EXPECT_EQ(volume->capacity(), 16_MiB);
  EXPECT_EQ(volume->status().changed_bytes, 6 * kG);
  EXPECT_TRUE(volume->status().exact);
  ASSERT_OK(volume->TakeSnapshot("wednesday"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  const Ranges changed = {{0, kG}, {1_MiB, 2 * kG}, {6_MiB, kG}, {8_MiB, kG}, {12_MiB, kG}};
  EXPECT_EQ(DeltaOf(*volume, "tuesday", "wednesday"), changed);
  EXPECT_EQ(DeltaOf(*volume, "monday", "wednesday"), changed);
  // To the newest: what was written since.
  ASSERT_OK(Fill(*volume, 3_MiB, kG, 9));
  ASSERT_OK(volume->Revert("wednesday"));
  EXPECT_TRUE(BytesOf(*volume) == Monday());
  EXPECT_EQ(volume->status().changed_bytes, kG);
  // Nothing else happens to the snapshots.
  ASSERT_OK(volume->TakeSnapshot("thursday"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  ASSERT_OK(volume->DeleteSnapshot("tuesday"));
  CheckDeltas(*volume, "thursday");
  EXPECT_EQ(volume->snapshots().size(), 3u);
}

// Back and forth at random, with snapshots that come and go, growth, and closing in between.
TEST_F(RevertTest, MCAtRandomAgainstTheModel) {
  std::mt19937 random(7);
  test::RequireOk(TrackedVolume::Create(directory_, 1_MiB));
  auto volume = Open();
  VolumeModel model(1_MiB, kG);
  uint64_t number = 0;
  for (int step = 0; step < 150; ++step) {
    const std::vector<VolumeModel::Snapshot>& snapshots = model.snapshots();
    const unsigned action = random() % 16;
    if (action < 8) {
      const size_t offset = random() % model.bytes().size();
      const size_t length = std::min<size_t>(1 + random() % 9000, model.bytes().size() - offset);
      const auto value = static_cast<uint8_t>(random());
      ASSERT_OK(Fill(*volume, offset, length, value));
      model.Fill(offset, length, value);
    } else if (action < 11) {
      const std::string id = absl::StrCat("s", ++number);
      ASSERT_OK(volume->TakeSnapshot(id));
      ASSERT_TRUE(volume->WaitForCopies(60));
      model.Take(id);
      for (size_t base = 0; base < snapshots.size(); ++base) {
        ASSERT_EQ(DeltaOf(*volume, snapshots[base].id, id), model.Delta(base, snapshots.size() - 1))
            << "step " << step;
      }
    } else if (action == 11 && snapshots.size() > 1) {
      const size_t at = random() % snapshots.size();
      ASSERT_OK(volume->DeleteSnapshot(snapshots[at].id));
      model.Delete(at);
    } else if (action == 12 && model.bytes().size() < 2_MiB) {
      const size_t capacity = model.bytes().size() + 512 * (1 + random() % 64);
      ASSERT_OK(volume->Resize(capacity));
      model.Resize(capacity);
    } else if (action == 13) {
      ASSERT_OK(volume->Close());
      volume = Open();
    } else if (!snapshots.empty()) {
      const size_t at = random() % snapshots.size();
      ASSERT_OK(volume->Revert(snapshots[at].id));
      model.Revert(at);
    }
    ASSERT_TRUE(BytesOf(*volume) == model.bytes()) << "step " << step;
  }
}

// A snapshot that is being copied keeps what it had, where the copy has not been yet.
TEST_F(RevertTest, MCAnUnfinishedSnapshotIsPreserved) {
  constexpr size_t kSize = 256_MiB;
  test::RequireOk(TrackedVolume::Create(directory_, kSize));
  const auto volume = Open();
  for (uint64_t at = 0; at < kSize; at += 8_MiB) ASSERT_OK(Fill(*volume, at, 8_MiB, 1));
  ASSERT_OK(volume->TakeSnapshot("monday"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  ASSERT_OK(Fill(*volume, kSize - 1_MiB, 1_MiB, 2));
  ASSERT_OK(volume->TakeSnapshot("tuesday"));
  ASSERT_OK(volume->Revert("monday"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  std::vector<uint8_t> expected(kSize, 1);
  EXPECT_TRUE(BytesOf(*volume) == expected);
  std::fill_n(expected.end() - static_cast<std::ptrdiff_t>(1_MiB), 1_MiB, uint8_t{2});
  EXPECT_TRUE(BytesOf(*volume, "tuesday") == expected);
  EXPECT_EQ(volume->status().changed_bytes, 1_MiB);
}

TEST_F(RevertTest, MCWhatCantBeDoneIsRefused) {
  const auto volume = Make();
  const std::vector<uint8_t> before = BytesOf(*volume);
  const uint64_t changed = volume->status().changed_bytes;
  EXPECT_TRUE(absl::IsNotFound(volume->Revert("sunday")));
  EXPECT_TRUE(absl::IsInvalidArgument(volume->Revert("../data")));
  ASSERT_EQ(::chmod((directory_ + "/snapshots/monday").c_str(), 0600), 0);
  std::filesystem::resize_file(directory_ + "/snapshots/monday", 1_MiB);
  EXPECT_TRUE(absl::IsDataLoss(volume->Revert("monday")));
  EXPECT_TRUE(BytesOf(*volume) == before);
  EXPECT_EQ(volume->status().changed_bytes, changed);
  EXPECT_FALSE(IsUnderWay());
}

// There is nothing whole yet to go back to.
TEST_F(RevertTest, MCNotToASnapshotThatIsBeingCopied) {
  test::RequireOk(TrackedVolume::Create(directory_, 512_MiB));
  const auto volume = Open();
  for (uint64_t at = 0; at < 512_MiB; at += 8_MiB) ASSERT_OK(Fill(*volume, at, 8_MiB, 5));
  ASSERT_OK(volume->TakeSnapshot("s"));
  const absl::Status status = volume->Revert("s");
  if (status.ok()) GTEST_SKIP() << "copied already";
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_FALSE(IsUnderWay());
  EXPECT_OK(Fill(*volume, 0, kG, 1));
}

// A client would write back what it remembers of the time before.
TEST_F(RevertTest, MCNotUnderAClient) {
  const auto volume = Make();
  const auto server = ValueOf(ControlServer::Start(*volume, {.path = scratch_ / "s"}));
  const auto client = ValueOf(ControlClient::Connect(scratch_ / "s"));
  ASSERT_OK(volume->Attach());
  ASSERT_OK(volume->Attach());
  const std::vector<uint8_t> before = BytesOf(*volume);
  EXPECT_TRUE(absl::IsFailedPrecondition(client->Revert("monday")));
  volume->Detach();
  EXPECT_TRUE(absl::IsFailedPrecondition(client->Revert("monday")));
  EXPECT_TRUE(BytesOf(*volume) == before);
  volume->Detach();
  ASSERT_OK(client->Revert("monday"));
  EXPECT_TRUE(BytesOf(*volume) == Monday());
  EXPECT_TRUE(absl::IsNotFound(client->Revert("thursday")));
  EXPECT_OK(volume->Attach());
}

// The disk fails halfway. No caller sees that, and the next process finishes it.
TEST_F(RevertTest, MCAHalfIsNeverSeenAndIsFinished) {
  test::RunInChild([&] {
    const auto volume = Make();
    LimitFiles(512_KiB);
    EXPECT_FALSE(volume->Revert("monday").ok());
    LimitFiles(RLIM_INFINITY);
    std::vector<uint8_t> byte(1);
    EXPECT_TRUE(absl::IsUnavailable(volume->Read(0, byte)));
    EXPECT_TRUE(absl::IsUnavailable(Fill(*volume, 0, 1, 1)));
    EXPECT_TRUE(absl::IsUnavailable(volume->TakeSnapshot("wednesday").status()));
    EXPECT_TRUE(absl::IsUnavailable(volume->Attach()));
    EXPECT_TRUE(absl::IsUnavailable(volume->Revert("tuesday")));
    const VolumeStatus status = volume->status();
    EXPECT_EQ(status.changed_bytes, 16_MiB);
    EXPECT_FALSE(status.exact);
    EXPECT_NE(status.last_error, "");
    EXPECT_FALSE(volume->Close().ok());
  });
  ASSERT_TRUE(IsUnderWay());
  // Again, at opening.
  test::RunInChild([&] {
    LimitFiles(512_KiB);
    EXPECT_FALSE(TrackedVolume::Open(directory_).ok());
  });
  ASSERT_TRUE(IsUnderWay());
  const auto volume = Open();
  EXPECT_FALSE(IsUnderWay());
  EXPECT_TRUE(BytesOf(*volume) == Monday());
  ASSERT_OK(volume->TakeSnapshot("wednesday"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  CheckDeltas(*volume, "wednesday");
}

// Neither the log nor REVERT can be written: nothing has happened.
TEST_F(RevertTest, MCOneThatCantBeginChangesNothing) {
  test::RunInChild([&] {
    const auto volume = Make();
    const std::vector<uint8_t> before = BytesOf(*volume);
    LimitFiles(0);
    EXPECT_FALSE(volume->Revert("monday").ok());
    LimitFiles(RLIM_INFINITY);
    EXPECT_FALSE(IsUnderWay());
    EXPECT_TRUE(BytesOf(*volume) == before);
    absl::Status status = volume->Revert("monday");
    for (int i = 0; i < 1000 && !status.ok(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      status = volume->Revert("monday");
    }
    EXPECT_OK(status);
    EXPECT_TRUE(BytesOf(*volume) == Monday());
  });
}

// Without the snapshot there is no way back, and none forth.
TEST_F(RevertTest, MCAHalfWithoutItsSnapshotIsNotOpened) {
  test::RunInChild([&] {
    const auto volume = Make();
    LimitFiles(512_KiB);
    EXPECT_FALSE(volume->Revert("monday").ok());
  });
  ASSERT_TRUE(IsUnderWay());
  std::filesystem::rename(directory_ + "/snapshots/monday", scratch_ / "monday");
  EXPECT_TRUE(absl::IsDataLoss(TrackedVolume::Open(directory_).status()));
  std::fstream(directory_ + "/REVERT", std::ios::in | std::ios::out | std::ios::binary)
      .seekp(14)
      .write("?", 1);
  EXPECT_TRUE(absl::IsDataLoss(TrackedVolume::Open(directory_).status()));
}

// Killed at any moment: it is as before, or it is all done.
TEST_F(RevertTest, MCAKillLeavesNoMixture) {
  Make().reset();
  std::mt19937 random(11);
  int finished = 0;
  for (int i = 0; i < 8; ++i) {
    const std::string target = i % 2 == 0 ? "monday" : "tuesday";
    auto volume = Open();
    for (int j = 0; j < 8; ++j) {
      ASSERT_OK(Fill(*volume, random() % 15 * 1_MiB, 1_MiB, static_cast<uint8_t>(random())));
    }
    const std::vector<uint8_t> before = BytesOf(*volume);
    const std::vector<uint8_t> after = BytesOf(*volume, target);
    ASSERT_OK(volume->Close());
    volume.reset();

    int begun[2];
    ASSERT_EQ(::pipe2(begun, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto opened = TrackedVolume::Open(directory_, {.always_copy = true});
      static_cast<void>(::write(begun[1], "b", 1));
      if (opened.ok()) static_cast<void>((*opened)->Revert(target));
      ::_exit(0);
    }
    ::close(begun[1]);
    char byte = 0;
    ASSERT_EQ(::read(begun[0], &byte, 1), 1);
    ::close(begun[0]);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 15'000));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);

    const bool under_way = IsUnderWay();
    finished += under_way ? 1 : 0;
    volume = Open();
    const std::vector<uint8_t> bytes = BytesOf(*volume);
    ASSERT_TRUE(bytes == after || (!under_way && bytes == before)) << "attempt " << i;
    const std::string id = absl::StrCat("k", i);
    ASSERT_OK(volume->TakeSnapshot(id));
    ASSERT_TRUE(volume->WaitForCopies(60));
    CheckDeltas(*volume, id);
    if (i > 1) {
      ASSERT_OK(volume->DeleteSnapshot(absl::StrCat("k", i - 2)));
    }
    ASSERT_OK(volume->Close());
  }
  RecordProperty("finished", finished);
}

}  // namespace revert_test
}  // namespace cbt::volume

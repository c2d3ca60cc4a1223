// Somebody changes a volume's data while no process has it open.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/file_io.h"
#include "cbt/units.h"
#include "programs/volume/tracked_volume.h"
#include "tests/support/child.h"
#include "tests/support/files.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"
#include "tests/volume/volume_model.h"

namespace cbt::volume {
namespace replaced_data_test {

using test::ValueOf;
using test::VolumeModel;
using namespace units;

constexpr size_t kG = 4096;
constexpr size_t kSize = 8_MiB;

class ReplacedDataTest : public testing::Test {
 protected:
  ReplacedDataTest() {
    test::RequireOk(TrackedVolume::Create(directory_, kSize));
    const auto volume = Open();
    EXPECT_OK(volume->Write(0, std::vector<uint8_t>(3_MiB, 1), Durability::kCached));
    EXPECT_OK(volume->TakeSnapshot("monday"));
    EXPECT_OK(volume->Write(1_MiB, std::vector<uint8_t>(3_MiB, 2), Durability::kCached));
    EXPECT_OK(volume->TakeSnapshot("tuesday"));
    EXPECT_TRUE(volume->WaitForCopies(60));
    EXPECT_OK(volume->Close());
  }

  std::unique_ptr<TrackedVolume> Open() const {
    return ValueOf(TrackedVolume::Open(directory_, {.always_copy = true}));
  }
  static std::vector<uint8_t> BytesOf(const std::string& path) {
    return test::ReadFile<std::vector<uint8_t>>(path);
  }

  // The change is in the next delta, is reported, and the delta after it is exact.
  void CheckFound() {
    const auto volume = Open();
    EXPECT_EQ(volume->status().changed_bytes, kSize);
    EXPECT_FALSE(volume->status().exact);
    EXPECT_NE(volume->status().last_error.find("changed while the volume was closed"),
              std::string::npos);
    ASSERT_OK(volume->TakeSnapshot("wednesday"));
    ASSERT_TRUE(volume->WaitForCopies(60));
    for (const char* const base : {"monday", "tuesday"}) {
      EXPECT_TRUE(test::Covers(
          ValueOf(test::Drain(*ValueOf(volume->Delta(base, "wednesday")))),
          VolumeModel::Differing(BytesOf(ValueOf(volume->SnapshotPath(base))),
                                 BytesOf(ValueOf(volume->SnapshotPath("wednesday"))), kG),
          kG));
    }
    EXPECT_TRUE(volume->status().exact);
    ASSERT_OK(volume->Write(5_MiB, std::vector<uint8_t>(kG, 9), Durability::kCached));
    EXPECT_EQ(volume->status().changed_bytes, kG);
  }

  const test::TempDir scratch_;
  const std::string directory_ = scratch_ / "v";
};

TEST_F(ReplacedDataTest, MCASnapshotThatIsCopiedOverTheData) {
  // As cp does it: the same file, with other contents.
  std::ofstream(directory_ + "/data", std::ios::binary)
      << std::ifstream(directory_ + "/snapshots/monday", std::ios::binary).rdbuf();
  CheckFound();
}

TEST_F(ReplacedDataTest, MCAFileThatTakesThePlaceOfTheData) {
  std::filesystem::copy_file(directory_ + "/snapshots/monday", directory_ + "/new");
  std::filesystem::rename(directory_ + "/new", directory_ + "/data");
  CheckFound();
}

// rsync and cp -p set the time back.
TEST_F(ReplacedDataTest, MCAChangeThatKeepsSizeAndTime) {
  struct stat before;
  ASSERT_EQ(::stat((directory_ + "/data").c_str(), &before), 0);
  std::fstream(directory_ + "/data", std::ios::in | std::ios::out | std::ios::binary).write("x", 1);
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, (directory_ + "/data").c_str(), times, 0), 0);
  CheckFound();
}

// The change comes right after the volume was closed, before the clock of the file system ticks.
TEST_F(ReplacedDataTest, MCAChangeAtTheMomentOfClosing) {
  for (int i = 0; i < 20; ++i) {
    {
      const auto volume = Open();
      ASSERT_OK(volume->TakeSnapshot("now"));
      ASSERT_TRUE(volume->WaitForCopies(60));
      ASSERT_OK(volume->Write(0, std::vector<uint8_t>(10, 77), Durability::kCached));
      const OwnedDescriptor data(OpenFile(directory_ + "/data", O_RDWR));
      ASSERT_OK(volume->Close());
      ASSERT_EQ(::pwrite(data.number(), "y", 1, 4_MiB), 1);
    }
    const auto volume = Open();
    ASSERT_EQ(volume->status().changed_bytes, kSize) << "attempt " << i;
    ASSERT_OK(volume->DeleteSnapshot("now"));
  }
}

TEST_F(ReplacedDataTest, MCWithoutAChangeDeltasStayExact) {
  std::filesystem::rename(directory_, scratch_ / "moved");
  for (int i = 0; i < 3; ++i) {
    const auto volume = ValueOf(TrackedVolume::Open(scratch_ / "moved", {.always_copy = true}));
    EXPECT_EQ(volume->status().last_error, "");
    EXPECT_TRUE(volume->status().exact);
    EXPECT_EQ(volume->status().changed_bytes, static_cast<uint64_t>(i) * kG);
    ASSERT_OK(volume->Write(static_cast<uint64_t>(i) * kG, std::vector<uint8_t>(kG, 7),
                            Durability::kCached));
    if (i == 1) {
      ASSERT_OK(volume->Close());
    }
  }
}

// A process that was killed has written what the stamp does not know: that is no change by others.
TEST_F(ReplacedDataTest, MCAKillIsNoChange) {
  test::RunInChild([&] {
    auto volume = Open();
    EXPECT_OK(volume->Write(0, std::vector<uint8_t>(kG, 3), Durability::kFlushed));
    EXPECT_OK(volume->TakeSnapshot("wednesday"));
    EXPECT_TRUE(volume->WaitForCopies(60));
    static_cast<void>(volume.release());
  });
  const auto volume = Open();
  EXPECT_EQ(volume->status().last_error, "");
  EXPECT_EQ(volume->status().changed_bytes, 0u);
}

// An unfinished copy takes the rest from the data, which is another now.
TEST_F(ReplacedDataTest, MCAnUnfinishedSnapshotIsDropped) {
  {
    // More than the copy gets done until the volume is closed.
    test::RequireOk(TrackedVolume::Create(scratch_ / "large", 512_MiB));
    const auto volume = ValueOf(TrackedVolume::Open(scratch_ / "large", {.always_copy = true}));
    for (uint64_t at = 0; at < 512_MiB; at += 8_MiB) {
      ASSERT_OK(volume->Write(at, std::vector<uint8_t>(8_MiB, 5), Durability::kCached));
    }
    ASSERT_OK(volume->TakeSnapshot("s"));
    ASSERT_OK(volume->Close());
  }
  if (!std::filesystem::exists(scratch_ / "large/copying/s")) GTEST_SKIP() << "copied already";
  {
    std::fstream data(scratch_ / "large/data", std::ios::in | std::ios::out | std::ios::binary);
    data.seekp(511_MiB);
    data.write("x", 1);
  }
  const auto volume = ValueOf(TrackedVolume::Open(scratch_ / "large", {.always_copy = true}));
  EXPECT_TRUE(absl::IsNotFound(volume->FindSnapshot("s").status()));
  EXPECT_TRUE(std::filesystem::is_empty(scratch_ / "large/copying"));
}

// What is in the way of knowing counts as a change.
TEST_F(ReplacedDataTest, MCADamagedStampIsAChange) {
  std::ofstream(directory_ + "/CLOSED", std::ios::binary | std::ios::in | std::ios::out)
      .seekp(20)
      .write("?", 1);
  CheckFound();
}

}  // namespace replaced_data_test
}  // namespace cbt::volume

// The parts of an open volume, without one: its data, its snapshots' files, REVERT.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/directory.h"
#include "cbt/units.h"
#include "programs/volume/data_file.h"
#include "programs/volume/revert_file.h"
#include "programs/volume/snapshot_files.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::volume {
namespace parts_test {

using test::ValueOf;
using namespace units;

class PartsTest : public testing::Test {
 protected:
  void SetUp() override {
    scratch_.Write(kDataName, std::string(kSize, 'a'));
    for (const char* name : {kSnapshotsName, kCopyingName}) {
      std::filesystem::create_directories(scratch_ / name);
    }
    ASSERT_OK(data_.Open(volume_));
    ASSERT_OK(files_.Open(volume_));
  }
  std::vector<uint8_t> ReadAt(uint64_t offset, size_t bytes) const {
    std::vector<uint8_t> read(bytes);
    EXPECT_OK(data_.Read(offset, read));
    return read;
  }
  void Copy(const std::string& name) { ASSERT_OK(files_.BeginCopy(name, kSize, data_.number())); }

  static constexpr uint64_t kSize = kMiB;
  test::TempDir scratch_;
  const Directory volume_ = ValueOf(Directory::Open(scratch_.path()));
  DataFile data_;
  WriteGate gate_;
  SnapshotFiles files_{gate_};
};

using DataFileTest = PartsTest;

TEST_F(DataFileTest, IsCutToTheCapacityAndNeverShorter) {
  ASSERT_OK(data_.CutTo(kSize - 4096));
  EXPECT_EQ(std::filesystem::file_size(scratch_ / kDataName), kSize - 4096);
  EXPECT_TRUE(absl::IsDataLoss(data_.CutTo(kSize)));
  ASSERT_OK(data_.Resize(kSize));
  EXPECT_OK(data_.CutTo(kSize));
  std::vector<uint8_t> past(1);
  EXPECT_TRUE(absl::IsDataLoss(data_.Read(kSize, past)));
}

TEST_F(DataFileTest, RangesAreWrittenZeroedAndPunched) {
  const std::vector<uint8_t> bytes(4096, 'b');
  EXPECT_EQ(data_.Write(8192, bytes), 0);
  EXPECT_EQ(ReadAt(8192, 4096), bytes);
  EXPECT_EQ(data_.WriteZeros({8192, 4096}), 0);
  EXPECT_EQ(ReadAt(8192, 4096), std::vector<uint8_t>(4096));
  EXPECT_EQ(ReadAt(12288, 1), std::vector<uint8_t>{'a'});
  if (data_.Punch({0, 4096}) == 0) {
    EXPECT_EQ(ReadAt(0, 4096), std::vector<uint8_t>(4096));
    const auto parts = ValueOf(data_.Extents({0, kSize}, 2));
    EXPECT_EQ(parts.front().extent.offset, 0u);
    EXPECT_LE(parts.size(), 2u);
  }
  EXPECT_OK(data_.Sync());
  EXPECT_OK(data_.Sync());
}

using SnapshotFilesTest = PartsTest;

TEST_F(SnapshotFilesTest, ACopyIsASnapshotOnceItIsPublished) {
  Copy("one");
  EXPECT_TRUE(files_.copying());
  EXPECT_TRUE(*files_.Has("one"));
  EXPECT_FALSE(files_.InfoOf("one")->ready);
  const auto copy = files_.copies().front();
  EXPECT_EQ(files_.Preserve({0, 4096}), 0);
  EXPECT_EQ(data_.Write(0, std::vector<uint8_t>(4096, 'b')), 0);
  while (copy->Continue(64)) continue;
  ASSERT_OK(copy->Finish());
  ASSERT_OK(files_.Publish(*copy));
  files_.Forget(copy);
  EXPECT_FALSE(files_.copying());
  EXPECT_TRUE(files_.InfoOf("one")->ready);
  EXPECT_EQ(scratch_.Names(kCopyingName), std::vector<std::string>());
  const OwnedDescriptor file = ValueOf(files_.OpenFile("one", kSize));
  char byte = 0;
  EXPECT_EQ(::pread(file.number(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'a');
  EXPECT_TRUE(absl::IsDataLoss(files_.OpenFile("one", kSize + 1).status()));
  ASSERT_OK(files_.Remove("one"));
  EXPECT_FALSE(*files_.Has("one"));
  EXPECT_TRUE(absl::IsNotFound(files_.InfoOf("one").status()));
}

TEST_F(SnapshotFilesTest, CopiesOfAnEarlierProcessGoOnUnlessTheDataWasReplaced) {
  Copy("one");
  Copy("two");
  files_.Close();
  EXPECT_FALSE(files_.copying());
  size_t notes = 0;
  const auto note = [&notes](const absl::Status&) { ++notes; };
  SnapshotFiles again(gate_);
  ASSERT_OK(again.Open(volume_));
  ASSERT_OK(again.ResumeCopies(data_.number(), absl::OkStatus(), note));
  EXPECT_EQ(again.copies().size(), 2u);
  EXPECT_EQ(notes, 0u);
  // Those that the history does not have go.
  const auto kept = std::find_if(again.copies().begin(), again.copies().end(),
                                 [](const auto& copy) { return copy->name() == "two"; });
  ASSERT_OK(again.KeepCopies({*kept}));
  EXPECT_FALSE(*again.Has("one"));
  again.Close();
  SnapshotFiles replaced(gate_);
  ASSERT_OK(replaced.Open(volume_));
  ASSERT_OK(replaced.ResumeCopies(data_.number(), absl::AbortedError("replaced"), note));
  EXPECT_FALSE(replaced.copying());
  EXPECT_EQ(notes, 1u);
  EXPECT_EQ(scratch_.Names(kCopyingName), std::vector<std::string>());
}

TEST_F(SnapshotFilesTest, ACopyThatIsRemovedIsNotPreservedAnyMore) {
  Copy("one");
  ASSERT_OK(files_.Remove("one"));
  EXPECT_FALSE(files_.copying());
  EXPECT_EQ(scratch_.Names(kCopyingName), std::vector<std::string>());
  EXPECT_EQ(files_.Preserve({0, 4096}), 0);
  EXPECT_GT(files_.longest_hold_ns(), 0u);
}

TEST_F(SnapshotFilesTest, FilesOfAnOlderSnapshotWithTheIdGo) {
  for (const char* name : {"id", "id#1", "other"}) {
    scratch_.Write(std::string(kSnapshotsName) + "/" + name, "x");
  }
  files_.RemoveSuperseded({{.name = "id#1", .info = {.id = "id"}}}, [](const absl::Status&) {});
  EXPECT_EQ(scratch_.Names(kSnapshotsName), (std::vector<std::string>{"id#1", "other"}));
}

using RevertFileTest = PartsTest;

TEST_F(RevertFileTest, NamesTheSnapshotUntilItIsRemoved) {
  EXPECT_TRUE(absl::IsNotFound(ReadRevert(volume_).status()));
  ASSERT_OK(WriteRevert(volume_, "monday#1"));
  EXPECT_EQ(ValueOf(ReadRevert(volume_)), "monday#1");
  ASSERT_OK(RemoveRevert(volume_));
  ASSERT_OK(RemoveRevert(volume_));
  EXPECT_TRUE(absl::IsNotFound(ReadRevert(volume_).status()));
}

TEST_F(RevertFileTest, WhatIsDamagedIsNotTakenForNone) {
  ASSERT_OK(WriteRevert(volume_, "monday"));
  const std::vector<uint8_t> whole = ValueOf(volume_.Read(kRevertName, kMiB));
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bytes(whole.begin(), whole.end());
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    scratch_.Write(kRevertName, bytes);
    EXPECT_FALSE(ReadRevert(volume_).ok());
    EXPECT_FALSE(absl::IsNotFound(ReadRevert(volume_).status()));
  }
  scratch_.Write(kRevertName, "");
  EXPECT_TRUE(absl::IsDataLoss(ReadRevert(volume_).status()));
}

}  // namespace parts_test
}  // namespace cbt::volume

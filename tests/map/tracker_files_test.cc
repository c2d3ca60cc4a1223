// What the files of a tracker say about its epochs.
#include "map/tracker_files.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "maps.h"
#include "support/temp_dir.h"

namespace cbt {
namespace {

using test::Blocks;

constexpr VolumeGeometry kVolume = {uint64_t{1} << 20, 4096};

class TrackerFilesTest : public testing::Test {
 protected:
  void CreateLog(uint64_t epoch, uint64_t generation) const {
    RegionLogHeader header;
    header.geometry = kVolume;
    header.region_bytes = uint64_t{1} << 16;
    header.epoch = epoch;
    header.generation = generation;
    header.volume = "vol";
    header.base = "monday";
    const auto log = files_->CreateLog(header);
    ASSERT_TRUE(log.ok()) << log.status();
  }

  void WriteMap(uint64_t epoch, uint64_t generation, bool exact = true) const {
    ChangeMap map = test::MapOf(kMarked, kVolume);
    map.set_identity({"vol", "monday", ""});
    const absl::Status status = files_->WriteMap(map, epoch, generation, exact);
    ASSERT_TRUE(status.ok()) << status;
  }

  absl::StatusOr<std::vector<EpochFiles>> Read() { return files_->Read("vol", kVolume, next_); }

  // The only epoch, and its generation.
  void ExpectOne(uint64_t epoch, uint64_t generation) {
    const auto epochs = Read();
    ASSERT_TRUE(epochs.ok()) << epochs.status();
    ASSERT_EQ(epochs->size(), 1u);
    EXPECT_EQ(epochs->front().epoch, epoch);
    EXPECT_EQ(epochs->front().generation, generation);
    EXPECT_EQ(epochs->front().base, "monday");
    EXPECT_EQ(next_, epoch + 1);
  }

  static inline const Blocks kMarked = {3, 64, 255};
  const test::TempDir dir_;
  const std::unique_ptr<TrackerFiles> files_ = *TrackerFiles::Open(dir_ / "tracker");
  uint64_t next_ = 0;
};

// The next log must be the one that is looked for after those which are there.
TEST_F(TrackerFilesTest, TheGenerationIsThatOfTheLastLog) {
  for (uint64_t generation = 0; generation < 3; ++generation) {
    CreateLog(5, generation);
    ExpectOne(5, generation);
  }
  WriteMap(5, 2);
  ExpectOne(5, 2);
  EXPECT_EQ(dir_.Names("tracker"),
            (std::vector<std::string>{"LOCK", "epoch-5-2.cbm", "epoch-5-2.log"}));
  CreateLog(5, 3);
  ExpectOne(5, 3);
  // Closed in peace: a map, and no log yet of what comes behind it.
  WriteMap(5, 4);
  ExpectOne(5, 3);
  const auto epochs = Read();
  EXPECT_TRUE(epochs->front().exact);
  EXPECT_EQ(test::BlocksOf(epochs->front().map), kMarked);
}

TEST_F(TrackerFilesTest, ALogThatIsMissingIsALoss) {
  CreateLog(0, 0);
  CreateLog(0, 2);
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kDataLoss);
  // What the map has, the logs before it had.
  WriteMap(0, 2);
  ExpectOne(0, 2);
  CreateLog(0, 4);
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(TrackerFilesTest, AMapThatTakesTheOthersPlaceIsTheOnlyOne) {
  CreateLog(0, 0);
  WriteMap(0, 1);
  WriteMap(0, 1, false);
  EXPECT_FALSE(Read()->front().exact);
  EXPECT_EQ(dir_.Names("tracker"), (std::vector<std::string>{"LOCK", "epoch-0-1-rough.cbm"}));
  WriteMap(0, 1);
  EXPECT_TRUE(Read()->front().exact);
  EXPECT_EQ(dir_.Names("tracker"), (std::vector<std::string>{"LOCK", "epoch-0-1.cbm"}));
}

TEST_F(TrackerFilesTest, AnEpochIsForgottenAlone) {
  CreateLog(0, 0);
  CreateLog(1, 0);
  WriteMap(1, 0);
  EXPECT_EQ(Read()->size(), 2u);
  EXPECT_EQ(next_, 2u);
  ASSERT_TRUE(files_->Forget(1).ok());
  ExpectOne(0, 0);
  EXPECT_EQ(dir_.Names("tracker"), (std::vector<std::string>{"LOCK", "epoch-0-0.log"}));
  ASSERT_TRUE(files_->Forget(0).ok());
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kNotFound);
}

// Said to be gone, with files that could not be removed: gone, and its number is not used again.
TEST_F(TrackerFilesTest, WhatIsGoneStaysGone) {
  CreateLog(0, 0);
  CreateLog(7, 0);
  dir_.Write("tracker/epoch-7.gone", "");
  const auto epochs = Read();
  ASSERT_TRUE(epochs.ok()) << epochs.status();
  ASSERT_EQ(epochs->size(), 1u);
  EXPECT_EQ(epochs->front().epoch, 0u);
  EXPECT_EQ(next_, 8u);
  EXPECT_EQ(dir_.Names("tracker"), (std::vector<std::string>{"LOCK", "epoch-0-0.log"}));
}

}  // namespace
}  // namespace cbt

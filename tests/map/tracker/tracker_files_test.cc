// The record of epochs in a tracker's files.
#include "map/tracker/tracker_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/directory.h"
#include "cbt/change_map_file.h"
#include "cbt/units.h"
#include "map/tracker/region_log.h"
#include "tests/map/maps.h"
#include "tests/support/full_disk.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace tracker_files_test {

using test::Blocks;
using test::ValueOf;
using Names = std::vector<std::string>;

constexpr VolumeGeometry kVolume = {kMiB, 4096};

class TrackerFilesTest : public testing::Test {
 protected:
  ManifestFile CreateLog(uint64_t epoch, const std::string& base) {
    const auto log = files_->CreateLog({.tracker = 0,
                                        .geometry = kVolume,
                                        .region_bytes = uint64_t{1} << 16,
                                        .epoch = epoch,
                                        .number = 0,
                                        .volume = "vol",
                                        .base = base});
    EXPECT_OK(log);
    return log.ok() ? (*log)->file() : ManifestFile{};
  }

  ManifestFile WriteMap() {
    ChangeMap map = test::MapOf(kMarked, kVolume);
    map.set_identity({"vol", "monday", ""});
    return ValueOf(files_->WriteMap(map));
  }

  static TrackerManifest ManifestOf(std::vector<TrackedEpoch> epochs) {
    TrackerManifest manifest;
    manifest.geometry = kVolume;
    manifest.volume = "vol";
    manifest.next_epoch = 10;
    manifest.epochs = std::move(epochs);
    return manifest;
  }

  // Reads as another process would after this one exited.
  absl::StatusOr<TrackerFiles::Contents> Read() {
    files_.reset();
    files_ = ValueOf(TrackerFiles::Open(dir_ / "tracker"));
    return files_->Read("vol", kVolume);
  }

  static inline const Blocks kMarked = {3, 64, 255};
  const test::TempDir dir_;
  std::unique_ptr<TrackerFiles> files_ = ValueOf(TrackerFiles::Open(dir_ / "tracker"));
};

TEST_F(TrackerFilesTest, OnlyWhatTheManifestNamesCounts) {
  // A Create() that was cut off leaves this: nothing can have been announced.
  CreateLog(5, "monday");
  EXPECT_FALSE(ValueOf(files_->IsUsed()));
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kNotFound);
  CreateLog(5, "monday");
  CreateLog(5, "monday");
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kDataLoss);
  std::filesystem::remove(dir_ / "tracker/regions-2.log");
  const ManifestFile first = CreateLog(5, "monday");
  ASSERT_OK(files_->Commit(ManifestOf({{5, "monday", true, {}, {first}}})));
  WriteMap();
  CreateLog(6, "tuesday");
  auto contents = Read();
  ASSERT_OK(contents);
  ASSERT_EQ(contents->epochs.size(), 1u);
  EXPECT_EQ(contents->epochs[0].files.base, "monday");
  EXPECT_TRUE(contents->epochs[0].exact);
  EXPECT_TRUE(contents->epochs[0].map->empty());
  EXPECT_FALSE(contents->closed);
  EXPECT_EQ(dir_.Names("tracker"), (Names{"TRACKER", "regions-1.log"}));
}

TEST_F(TrackerFilesTest, ACommitRemovesWhatItDoesNotNameAndNothingBefore) {
  const ManifestFile log = CreateLog(0, "monday");
  ASSERT_OK(files_->Commit(ManifestOf({{0, "monday", true, {}, {log}}})));
  const ManifestFile map = WriteMap();
  const ManifestFile next = CreateLog(0, "monday");
  EXPECT_EQ(dir_.Names("tracker"),
            (Names{"TRACKER", "changes-2.cbm", "regions-1.log", "regions-3.log"}));
  TrackerManifest manifest = files_->manifest();
  manifest.epochs[0].map = map;
  manifest.epochs[0].logs = {next};
  ASSERT_OK(files_->Commit(std::move(manifest)));
  EXPECT_EQ(dir_.Names("tracker"), (Names{"TRACKER", "changes-2.cbm", "regions-3.log"}));
  const auto contents = Read();
  ASSERT_OK(contents);
  EXPECT_EQ(test::BlocksOf(contents->epochs[0].map), kMarked);
  // File numbers are never reused.
  EXPECT_EQ(CreateLog(0, "monday").number, 4u);
}

// A number that was used but not recorded could name another file after a restart.
TEST_F(TrackerFilesTest, WhatWasLeftBesideTheManifestIsSwept) {
  const ManifestFile log = CreateLog(0, "monday");
  ASSERT_OK(files_->Commit(ManifestOf({{0, "monday", true, {}, {log}}})));
  dir_.Write("tracker/.TRACKER.1-1.partial", "x");
  dir_.Write("tracker/.changes-9.cbm.1-1.partial", "x");
  dir_.Write("tracker/changes-9.cbm", "x");
  dir_.Write("tracker/regions-9.log", "x");
  // Files of others, whatever their names share with a tracker's.
  const Names others = {".hidden.partial", ".regions-9.log", "changes.txt",  "changes-9.txt",
                        "mine.cbm",        "mine.log",       "regions-9.txt"};
  for (const std::string& name : others) dir_.Write("tracker/" + name, "x");
  ASSERT_OK(Read());
  Names left = {"TRACKER", "regions-1.log"};
  left.insert(left.end(), others.begin(), others.end());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(dir_.Names("tracker"), left);
}

TEST_F(TrackerFilesTest, ADirectoryThatHoldsAnyFileOfATrackerIsUsed) {
  for (const char* const name :
       {"TRACKER", "changes-3.cbm", "regions-3.log", "epoch-0-0.log", "epoch-0-1-rough.cbm"}) {
    dir_.Write("tracker/notes.txt", "x");
    EXPECT_FALSE(ValueOf(files_->IsUsed())) << name;
    EXPECT_EQ(Read().status().code(), absl::StatusCode::kNotFound) << name;
    dir_.Write(std::string("tracker/") + name, "");
    EXPECT_TRUE(ValueOf(files_->IsUsed())) << name;
    EXPECT_EQ(Read().status().code(), absl::StatusCode::kDataLoss) << name;
    std::filesystem::remove(dir_ / (std::string("tracker/") + name));
  }
}

// A map of another epoch with a valid checksum.
TEST_F(TrackerFilesTest, AttackDAnotherMapUnderTheNameIsRefused) {
  const ManifestFile log = CreateLog(0, "monday");
  const ManifestFile map = WriteMap();
  ASSERT_OK(files_->Commit(ManifestOf({{0, "monday", true, map, {log}}})));
  ChangeMap other = test::MapOf({4}, kVolume);
  other.set_identity({"vol", "monday", ""});
  ASSERT_OK(WriteChangeMap(other, dir_ / "tracker/changes-2.cbm"));
  const absl::Status status = Read().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("is not the map that the manifest names"), std::string::npos)
      << status;
}

// It is unknown whether the commit reached the disk, so the files of both states stay.
TEST_F(TrackerFilesTest, ACommitThatFailsLeavesTheOneBefore) {
  const ManifestFile log = CreateLog(0, "monday");
  ASSERT_OK(files_->Commit(ManifestOf({{0, "monday", true, {}, {log}}})));
  const ManifestFile next = CreateLog(1, "tuesday");
  // A directory under that name cannot be replaced by a file.
  std::filesystem::rename(dir_ / "tracker/TRACKER", dir_ / "TRACKER");
  std::filesystem::create_directory(dir_ / "tracker/TRACKER");
  EXPECT_FALSE(files_->Commit(ManifestOf({{1, "tuesday", true, {}, {next}}})).ok());
  EXPECT_TRUE(files_->IsUnsure());
  EXPECT_EQ(files_->manifest().epochs[0].base, "monday");
  std::filesystem::remove(dir_ / "tracker/TRACKER");
  std::filesystem::rename(dir_ / "TRACKER", dir_ / "tracker/TRACKER");
  EXPECT_EQ(dir_.Names("tracker"), (Names{"TRACKER", "regions-1.log", "regions-2.log"}));
  ASSERT_OK(files_->Commit(files_->manifest()));
  EXPECT_FALSE(files_->IsUnsure());
  EXPECT_EQ(dir_.Names("tracker"), (Names{"TRACKER", "regions-1.log"}));
}

// Nothing was written, so the state on disk is known.
TEST_F(TrackerFilesTest, ACommitThatMayNotWriteLeavesNoDoubt) {
  const ManifestFile log = CreateLog(0, "monday");
  ASSERT_OK(files_->Commit(ManifestOf({{0, "monday", true, {}, {log}}})));
  std::optional<test::FullDisk> full(std::in_place);
  const absl::Status status = files_->Commit(ManifestOf({{0, "tuesday", true, {}, {log}}}));
  full.reset();
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(files_->IsUnsure());
  EXPECT_EQ(files_->manifest().epochs[0].base, "monday");
}

// The largest log has 2^24 records of 16 bytes.
TEST_F(TrackerFilesTest, AFileThatIsTooLargeForALogIsNotRead) {
  const Directory directory = ValueOf(Directory::Open(dir_.path()));
  dir_.Write("regions.log", "");
  std::filesystem::resize_file(dir_ / "regions.log", 300 * kMiB);
  const absl::Status status = RegionLog::Read(directory, "regions.log").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("more than the maximum of 268447744"), std::string::npos)
      << status;
}

// Two writers at one offset would lose regions that both reported as logged.
TEST_F(TrackerFilesTest, ThreadsThatLogAtTheSameTimeLoseNoRegion) {
  constexpr uint64_t kRegions = 1 << 14;
  constexpr uint64_t kThreads = 4;
  const VolumeGeometry geometry = {kRegions << 16, 4096};
  const Directory directory = ValueOf(Directory::Open(dir_.path()));
  const auto log = ValueOf(RegionLog::Create(directory, "regions.log",
                                             {.tracker = 1,
                                              .geometry = geometry,
                                              .region_bytes = uint64_t{1} << 16,
                                              .epoch = 0,
                                              .number = 1,
                                              .volume = "vol",
                                              .base = "monday"}));
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t region = t; region < kRegions / 4; region += kThreads) {
        ASSERT_OK(log->Add(region, region));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const RegionLog::Contents contents = ValueOf(RegionLog::Read(directory, "regions.log"));
  EXPECT_TRUE(contents.sound);
  const std::set<uint64_t> found(contents.regions.begin(), contents.regions.end());
  EXPECT_EQ(found.size(), kRegions / 4);
  EXPECT_EQ(contents.regions.size(), kRegions / 4);
}

}  // namespace tracker_files_test
}  // namespace cbt

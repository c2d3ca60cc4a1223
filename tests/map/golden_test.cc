// Files of every released format version (tests/map/data) must read back as the state they were
// written from, and the same state must produce the same bytes. Released files never change;
// CBT_WRITE_GOLDEN=1 adds missing ones.
#include "tests/map/golden.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/directory.h"
#include "cbt/change_chain.h"
#include "cbt/change_map_file.h"
#include "cbt/change_tracker.h"
#include "cbt/units.h"
#include "map/chain/chain_manifest.h"
#include "map/tracker/region_log.h"
#include "tests/map/maps.h"
#include "tests/support/figures.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace golden_test {

using test::Blocks;
using test::BlocksOf;
using test::Files;
using test::ValueOf;

// For the scorecard: the files that were read, and those with any failure.
std::set<std::string> files_checked;
std::set<std::string> files_wrong;

class Figures : public testing::Environment {
 public:
  void TearDown() override {
    test::PrintFigure("r23_files", files_checked.size());
    test::PrintFigure("r23_wrong", files_wrong.size());
  }
};
const testing::Environment* const figures = testing::AddGlobalTestEnvironment(new Figures);

std::string DumpsOf(const std::string& name) { return absl::StrCat(CBT_GOLDEN_FOLDER, "/", name); }

std::span<const uint8_t> Bytes(const std::string& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

// The released files of `directory`. `now` must equal them to the bit.
Files Released(const std::string& directory, const Files& now) {
  if (std::getenv("CBT_WRITE_GOLDEN") != nullptr) test::WriteNewDumps(now, DumpsOf(directory));
  Files released = test::ReadDumps(DumpsOf(directory));
  EXPECT_FALSE(now.empty()) << directory;
  for (const auto& [name, bytes] : now) {
    if (!released.contains(name)) files_wrong.insert(absl::StrCat(directory, "/", name));
    EXPECT_TRUE(released.contains(name)) << directory << ": no released file " << name;
  }
  for (const auto& [name, bytes] : released) {
    files_checked.insert(absl::StrCat(directory, "/", name));
    const auto made = now.find(name);
    const bool same = made != now.end() && made->second == bytes;
    if (!same) files_wrong.insert(absl::StrCat(directory, "/", name));
    EXPECT_TRUE(same) << directory << "/" << name << " is written differently, as\n"
                      << (made == now.end() ? "none" : test::DumpOfBytes(made->second));
  }
  return released;
}

// Counts the files of a directory as wrong if a check fails.
class Watch {
 public:
  Watch(const std::string& directory, const Files& files) : directory_(directory), files_(files) {}
  ~Watch() {
    if (!testing::Test::HasFailure()) return;
    for (const auto& [name, bytes] : files_)
      files_wrong.insert(absl::StrCat(directory_, "/", name));
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  const std::string directory_;
  const Files& files_;
};

// In every format the major version follows the eight magic bytes.
std::string OfMajor(std::string bytes, char major) {
  bytes[8] = major;
  return bytes;
}

void ExpectRefused(const absl::Status& status, const std::string& version,
                   const std::string& reads = " 1") {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_NE(status.message().find(absl::StrCat("has version ", version)), std::string::npos)
      << status;
  EXPECT_NE(status.message().find("this program reads version" + reads), std::string::npos)
      << status;
}

// ---- maps

struct GoldenMap {
  std::string name;
  VolumeGeometry geometry;
  ChangeMapIdentity identity;
  Blocks blocks;
};

void Every(uint64_t step, uint64_t first, uint64_t end, Blocks& blocks) {
  for (uint64_t block = first; block < end; block += step) blocks.push_back(block);
}

std::vector<GoldenMap> Maps() {
  constexpr uint64_t kTera = kTiB;
  const ChangeMapIdentity days = {"vol", "monday", "tuesday"};
  // All container kinds with offsets: an array, dense bits, one run, many runs, full.
  Blocks kinds = {1, 3, 5};
  Every(2, 1 << 16, 2 << 16, kinds);
  Every(1, (2 << 16) + 100, (2 << 16) + 6000, kinds);
  for (uint64_t run = 0; run < 9; ++run) {
    Every(1, (5 << 16) + run * 4096, (5 << 16) + run * 4096 + 9, kinds);
  }
  Every(1, 6 << 16, 7 << 16, kinds);
  Every(8, 9 << 16, 10 << 16, kinds);
  // A payload of more than one piece.
  Blocks pieces;
  Every(2, 0, 9 << 16, pieces);
  return {
      {"example.cbm", {kGiB, 4096}, days, {1, 3, 65536, 65537, 65538, 65539}},
      {"nothing.cbm", {}, {}, {}},
      {"empty.cbm", {kTera, 4096}, days, {}},
      {"allocated.cbm", {9999, 1000}, {"b\xc3\xa4nd", "", "heute"}, {0, 4, 5, 9}},
      {"arrays.cbm", {2 * kTera, 512}, days, {0, 2, 4, (uint64_t{65535} << 16) + 7}},
      {"kinds.cbm", {kTera - 4095, 4096}, days, kinds},
      {"pieces.cbm", {kTera, 65536}, days, pieces},
      {"groups.cbm",
       {uint64_t{1} << 62, 1},
       days,
       {7, uint64_t{1} << 32, (uint64_t{5} << 32) + 6, (uint64_t{1} << 62) - 1}},
      {"largest.cbm", {(uint64_t{1} << 63) - 1, uint64_t{1} << 62}, {}, {1}},
  };
}

TEST(GoldenTest, MapsAreReadAsTheyWereAndWrittenToTheBit) {
  Files now;
  for (const GoldenMap& golden : Maps()) {
    ChangeMap map = test::MapOf(golden.blocks, golden.geometry);
    map.set_identity(golden.identity);
    ASSERT_OK_AND_ASSIGN(const std::vector<uint8_t> bytes, EncodeChangeMap(map));
    now[golden.name] = {bytes.begin(), bytes.end()};
  }
  const Files released = Released("v1/maps", now);
  for (const GoldenMap& golden : Maps()) {
    SCOPED_TRACE(golden.name);
    const test::TempDir directory;
    const Files files = {{golden.name, released.at(golden.name)}};
    const Watch watch("v1/maps", files);
    test::WriteFiles(files, directory.path());
    const std::string path = directory / golden.name;
    const absl::StatusOr<ChangeMap> map = ReadChangeMap(path);
    ASSERT_OK(map);
    EXPECT_EQ(map->view().geometry(), golden.geometry);
    EXPECT_EQ(map->identity(), golden.identity);
    EXPECT_EQ(BlocksOf(*map), golden.blocks);
    EXPECT_EQ(BlocksOf(*ValueOf(OpenChangeMapCursor(path))), golden.blocks);
    EXPECT_EQ(ValueOf(ReadChangeMapHeader(path)).cardinality, golden.blocks.size());
    // Through the loaded map, not the built one.
    ASSERT_OK_AND_ASSIGN(const std::vector<uint8_t> again, EncodeChangeMap(*map));
    EXPECT_EQ(std::string(again.begin(), again.end()), files.at(golden.name));
    const std::string newer = OfMajor(files.at(golden.name), 2);
    ExpectRefused(DecodeChangeMap(Bytes(newer), "x.cbm").status(), "2.0 of the change-map format");
    test::WriteFiles({{golden.name, newer}}, directory.path());
    ExpectRefused(ReadChangeMap(path).status(), "2.0 of the change-map format");
    ExpectRefused(ReadChangeMapHeader(path).status(), "2.0 of the change-map format");
    ExpectRefused(OpenChangeMapCursor(path).status(), "2.0 of the change-map format");
  }
}

// ---- chains

constexpr uint64_t kG = 4096;
const ChainOptions kQuick = {.sync = false};

// Six days. The volume was smaller on the second, which is removed later.
uint64_t CapacityOn(uint64_t day) {
  return day < 2 ? 110 * kG : day == 2 ? 100 * kG : 120 * kG + 5;
}

int64_t TimeOn(uint64_t day) {
  return (1'767'225'600 + static_cast<int64_t>(day) * 86'400) * 1'000'000'000;
}

void BuildChain(const std::string& directory) {
  const auto chain =
      ValueOf(ChangeChain::Create(directory, "vol", kG, {"d0", CapacityOn(0), TimeOn(0)}, kQuick));
  for (uint64_t day = 1; day < 6; ++day) {
    ChangeMap map = test::MapOf({day, 10 * day, 10 * day + 1}, {CapacityOn(day), kG});
    map.set_identity({"vol", absl::StrCat("d", day - 1), absl::StrCat("d", day)});
    // From 2026-01-02 on, a day apart; one is not known.
    const auto time = std::optional(TimeOn(day));
    ASSERT_OK(chain->Append(map, day == 4 ? std::nullopt : time));
  }
  ASSERT_OK(chain->Remove("d2"));
}

// What changed after day `base` up to day `target`, and what was lost and came back.
Blocks ChainOracle(uint64_t base, uint64_t target) {
  std::set<uint64_t> all;
  for (uint64_t day = base + 1; day <= target; ++day) all.insert({day, 10 * day, 10 * day + 1});
  for (uint64_t block = 100; base < 2 && target > 2 && block < 110; ++block) all.insert(block);
  return {all.begin(), all.end()};
}

// Version 1 has no times.
void ExpectChain(const std::string& name, const Files& released, bool times) {
  const test::TempDir directory;
  const Watch watch(name, released);
  const std::string path = directory / "released";
  test::WriteFiles(released, path);
  const absl::StatusOr<std::unique_ptr<ChangeChain>> chain =
      ChangeChain::Open(path, ChangeChain::Access::kRead);
  ASSERT_OK(chain);
  EXPECT_OK((*chain)->Verify());
  EXPECT_EQ((*chain)->volume(), "vol");
  EXPECT_EQ((*chain)->granularity(), kG);
  const std::vector<uint64_t> days = {0, 1, 3, 4, 5};
  const std::vector<ChainSnapshot> snapshots = (*chain)->snapshots();
  ASSERT_EQ(snapshots.size(), days.size());
  for (size_t i = 0; i < days.size(); ++i) {
    EXPECT_EQ(snapshots[i].id, absl::StrCat("d", days[i]));
    EXPECT_EQ(snapshots[i].capacity, CapacityOn(days[i]));
    EXPECT_EQ(snapshots[i].time,
              times && days[i] != 4 ? std::optional(TimeOn(days[i])) : std::nullopt);
    for (size_t j = i; j < days.size(); ++j) {
      const auto delta = (*chain)->Delta(snapshots[i].id, snapshots[j].id);
      ASSERT_OK(delta);
      EXPECT_EQ(BlocksOf(**delta), ChainOracle(days[i], days[j])) << days[i] << ' ' << days[j];
    }
  }
  test::WriteFiles({{"CHAIN", OfMajor(released.at("CHAIN"), 3)}}, path);
  ExpectRefused(ChangeChain::Open(path, ChangeChain::Access::kRead).status(),
                "3.0 of the chain format", "s 1 to 2");
}

TEST(GoldenTest, ChainsAreReadAsTheyWereAndWrittenToTheBit) {
  const test::TempDir directory;
  BuildChain(directory / "now");
  const Files released = Released("v2/chain", test::FilesOf(directory / "now"));
  ExpectChain("v2/chain", released, /*times=*/true);
  const std::string& manifest = released.at("CHAIN");
  const std::vector<uint8_t> again =
      EncodeManifest(ValueOf(DecodeManifest(Bytes(manifest), "CHAIN")));
  EXPECT_EQ(std::string(again.begin(), again.end()), manifest);
}

TEST(GoldenTest, ChainsOfVersion1AreRead) {
  const Files released = test::ReadDumps(DumpsOf("v1/chain"));
  ASSERT_FALSE(released.empty());
  for (const auto& [name, bytes] : released) files_checked.insert("v1/chain/" + name);
  ExpectChain("v1/chain", released, /*times=*/false);
}

// ---- trackers

struct GoldenTracker {
  std::string name;
  // Leaves `directory` as an exited process would, and stores its files in `left`.
  std::function<void(const TrackerOptions&, Files& left)> build;
  bool exact = true;  // whether the oldest epoch is exact
  std::vector<std::string> bases;
  Blocks changes;
};

Blocks Regions(const std::vector<uint64_t>& regions) {
  Blocks blocks;
  for (const uint64_t region : regions) Every(1, region * 10, region * 10 + 10, blocks);
  return blocks;
}

TrackerOptions OptionsIn(const std::string& directory) {
  return {.geometry = {200 * kG, kG},
          .volume = "vol",
          .base = "monday",
          .directory = directory,
          .region_bytes = 10 * kG,
          .id = 0x1122334455667788};
}

void MarkBlocks(ChangeTracker& tracker, const Blocks& blocks) {
  for (const uint64_t block : blocks) ASSERT_OK(tracker.Mark({block * kG, 1}));
}

void LeaveClosed(const TrackerOptions& options, Files& left) {
  const auto tracker = ValueOf(ChangeTracker::Create(options));
  MarkBlocks(*tracker, {3, 5, 177});
  ASSERT_OK(tracker->Close());
  left = test::FilesOf(options.directory);
}

void LeaveCrashed(const TrackerOptions& options, Files& left) {
  const auto tracker = ValueOf(ChangeTracker::Create(options));
  MarkBlocks(*tracker, {3, 177});
  ASSERT_OK(tracker->Checkpoint());
  MarkBlocks(*tracker, {45, 91});
  left = test::FilesOf(options.directory);
}

void LeaveRough(const TrackerOptions& options, Files& left) {
  LeaveCrashed(options, left);
  std::filesystem::remove_all(options.directory);
  test::WriteFiles(left, options.directory);
  const auto tracker = ValueOf(ChangeTracker::Recover(options));
  ASSERT_OK(tracker->Close());
  left = test::FilesOf(options.directory);
}

void LeaveInTheWindow(const TrackerOptions& options, Files& left) {
  const auto tracker = ValueOf(ChangeTracker::Create(options));
  MarkBlocks(*tracker, {3});
  ASSERT_OK(tracker->OpenEpoch("tuesday"));
  MarkBlocks(*tracker, {60});
  left = test::FilesOf(options.directory);
}

TEST(GoldenTest, TrackersAreRecoveredAsTheyWereAndWrittenToTheBit) {
  Blocks crashed = {3};
  for (const uint64_t block : Regions({4, 9})) crashed.push_back(block);
  crashed.push_back(177);
  const std::vector<GoldenTracker> goldens = {
      {"v2/tracker-closed", LeaveClosed, true, {"monday"}, {3, 5, 177}},
      {"v2/tracker-crashed", LeaveCrashed, false, {"monday"}, crashed},
      {"v2/tracker-rough", LeaveRough, false, {"monday"}, crashed},
      {"v2/tracker-window", LeaveInTheWindow, false, {"monday", "tuesday"}, Regions({0, 6})},
  };
  for (const GoldenTracker& golden : goldens) {
    SCOPED_TRACE(golden.name);
    const test::TempDir directory;
    Files now;
    golden.build(OptionsIn(directory / "now"), now);
    const Files released = Released(golden.name, now);
    const Watch watch(golden.name, released);
    const TrackerOptions options = OptionsIn(directory / "released");
    test::WriteFiles(released, options.directory);
    {
      const absl::StatusOr<std::unique_ptr<ChangeTracker>> tracker =
          ChangeTracker::Recover(options);
      ASSERT_OK(tracker);
      const std::vector<ChangeTracker::Epoch> epochs = (*tracker)->epochs();
      ASSERT_EQ(epochs.size(), golden.bases.size());
      for (size_t i = 0; i < epochs.size(); ++i) EXPECT_EQ(epochs[i].base, golden.bases[i]);
      EXPECT_EQ(epochs.front().exact, golden.exact);
      EXPECT_EQ(BlocksOf(ValueOf((*tracker)->Changes())), golden.changes);
    }
    // Each file alone, then the tracker: a newer format is never read as an older one.
    for (const auto& [name, bytes] : released) {
      std::filesystem::remove_all(options.directory);
      Files newer = released;
      newer[name] = OfMajor(bytes, 3);
      test::WriteFiles(newer, options.directory);
      if (name.ends_with(".log")) {
        ASSERT_OK_AND_ASSIGN(const Directory files, Directory::Open(options.directory));
        ExpectRefused(RegionLog::Read(files, name).status(), "3", " 2");
      }
      const absl::Status status = ChangeTracker::Recover(options).status();
      EXPECT_FALSE(status.ok()) << name;
      EXPECT_NE(status.message().find("version 3"), std::string::npos) << name << ": " << status;
    }
  }
}

// They have no manifest, so a missing log would have to mean that the tracker was closed.
TEST(GoldenTest, TrackersOfTheFirstVersionAreRefused) {
  for (const char* const name :
       {"tracker-closed", "tracker-crashed", "tracker-rough", "tracker-window"}) {
    const Files released = test::ReadDumps(DumpsOf(absl::StrCat("v1/", name)));
    ASSERT_FALSE(released.empty()) << name;
    const test::TempDir directory;
    const TrackerOptions options = OptionsIn(directory / "released");
    test::WriteFiles(released, options.directory);
    const absl::Status status = ChangeTracker::Recover(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << name << ": " << status;
    EXPECT_NE(status.message().find("take a full backup"), std::string::npos) << status;
    EXPECT_EQ(ChangeTracker::Create(options).status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(test::FilesOf(options.directory), released) << name;
  }
}

}  // namespace golden_test
}  // namespace cbt

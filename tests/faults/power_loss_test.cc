// Power is lost at every step that map files, chains and trackers write to disk. Afterwards the old
// or the new state is there, acknowledged data is there, and a tracker has every write.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/change_chain.h"
#include "cbt/change_map_file.h"
#include "cbt/change_tracker.h"
#include "tests/faults/support/crash_disk.h"
#include "tests/faults/support/disk_recorder.h"
#include "tests/map/maps.h"
#include "tests/support/figures.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace power_loss_test {

using Access = ChangeChain::Access;
using Set = std::set<uint64_t>;

constexpr uint64_t kBlock = 4096;
constexpr VolumeGeometry kVolume = {1000 * kBlock, kBlock};

// In memory if possible: nothing here needs to survive.
std::string MakeDirectory() {
  const bool memory = ::access("/dev/shm", W_OK) == 0;
  std::string name = (memory ? "/dev/shm" : testing::TempDir()) + "/cbt-power-XXXXXX";
  EXPECT_NE(::mkdtemp(name.data()), nullptr);
  return name;
}

ChangeMap MapOf(const Set& blocks, const std::string& base = {}, const std::string& target = {}) {
  ChangeMap map = test::MapOf({blocks.begin(), blocks.end()}, kVolume);
  map.set_identity({"vol", base, target});
  return map;
}

using Notes = std::vector<std::string>;

class PowerLoss : public testing::Test {
 protected:
  // Returns what is wrong in `after_` once these notes have been made; empty if nothing is.
  using Judge = std::function<std::string(const Notes& notes)>;

  PowerLoss()
      : directory_(MakeDirectory()), live_(directory_ + "/live"), after_(directory_ + "/after") {}
  ~PowerLoss() override { std::filesystem::remove_all(directory_); }
  static void TearDownTestSuite() {
    PrintFigure("r13_states", states_);
    PrintFigure("r13_wrong", wrong_);
  }

  // What `work` does to the files below `live_`, from an empty directory.
  std::vector<DiskOperation> Record(const std::function<void()>& work) const {
    std::filesystem::remove_all(live_);
    std::filesystem::create_directory(live_);
    StartRecording(live_);
    work();
    return StopRecording();
  }

  // Judges each state that a power loss before any operation, or at the end, may leave.
  void Check(const std::vector<DiskOperation>& operations, const Judge& judge,
             size_t pairs = TestScale() > 1 ? 2000 : 24) {
    constexpr uint64_t kSeed = 13;
    const testing::ScopedTrace trace(__FILE__, __LINE__, absl::StrCat("seed ", kSeed));
    CrashDisk disk(kSeed);
    Notes notes;
    ASSERT_FALSE(operations.empty());
    const int64_t before = states_;
    std::set<std::pair<uint64_t, size_t>> seen;
    const auto check = [&](const DiskState& state) {
      if (!seen.emplace(state.Hash(), notes.size()).second) return;
      ++states_;
      state.WriteTo(after_);
      const std::string wrong = judge(notes);
      if (wrong.empty()) return;
      ++wrong_;
      std::string there;
      for (const auto& [path, bytes] : state.files) {
        absl::StrAppend(&there, " ", path, " (", bytes.size(), ")");
      }
      ADD_FAILURE() << wrong << "\nafter " << (notes.empty() ? "nothing" : notes.back())
                    << "\non the disk:" << there;
    };
    for (const DiskOperation& operation : operations) {
      if (operation.kind == DiskOperation::Kind::kNote) {
        notes.push_back(operation.path);
        continue;
      }
      disk.ForEachState(pairs, check);
      disk.Do(operation);
      if (HasFailure()) return;
    }
    disk.ForEachState(pairs, check);
    EXPECT_GT(states_, before);
  }

  // The same with a kill before an operation, another process that continues, and then the power
  // loss.
  void CheckAfterKills(const std::function<void()>& work, const std::function<void()>& again,
                       const Judge& judge, size_t kills) {
    // Right after a rename, the new name is visible but not durable yet.
    std::vector<int64_t> places;
    int64_t done = 0;
    for (const DiskOperation& operation : Record(work)) {
      if (operation.kind == DiskOperation::Kind::kNote) continue;
      ++done;
      if (TestScale() > 1 || operation.kind == DiskOperation::Kind::kRename) places.push_back(done);
    }
    ASSERT_FALSE(places.empty());
    const size_t step = TestScale() > 1 ? 1 : (places.size() + kills - 1) / kills;
    for (size_t i = 0; i < places.size() && !HasFailure(); i += step) {
      const int64_t kill = places[i];
      SCOPED_TRACE(absl::StrCat("killed after ", kill, " operations"));
      Check(Record([&] {
              DieAfter(kill);
              work();
              DieAfter(-1);
              again();
            }),
            judge, 12);
    }
  }

  const std::string directory_;
  const std::string live_;   // where the work happens
  const std::string after_;  // where the state is restored
  static inline int64_t states_ = 0;
  static inline int64_t wrong_ = 0;
};

// ---- map files

std::optional<std::string> BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST_F(PowerLoss, AMapFileIsTheOldOneOrTheNewOne) {
  Set many;
  for (uint64_t block = 0; block < 900; block += 3) many.insert(block);
  const std::vector<ChangeMap> maps = {MapOf({1, 2}), MapOf(many), MapOf({})};
  std::vector<std::string> bytes;
  for (const ChangeMap& map : maps) {
    ASSERT_OK_AND_ASSIGN(const std::vector<uint8_t> encoded, EncodeChangeMap(map));
    bytes.emplace_back(encoded.begin(), encoded.end());
  }
  Check(Record([&] {
          for (const ChangeMap& map : maps) {
            Note("write");
            if (WriteChangeMap(map, live_ + "/m.cbm").ok()) Note("written");
          }
        }),
        [&](const Notes& notes) -> std::string {
          const auto written =
              static_cast<size_t>(std::count(notes.begin(), notes.end(), "written"));
          const auto begun = static_cast<size_t>(std::count(notes.begin(), notes.end(), "write"));
          const std::optional<std::string> found = BytesOf(after_ + "/m.cbm");
          if (!found.has_value()) return written == 0 ? "" : "no map";
          for (size_t i = written == 0 ? 0 : written - 1; i < begun; ++i) {
            if (*found == bytes[i]) return "";
          }
          return "another map";
        });
}

// ---- chains

std::string ListOf(const ChangeChain& chain) {
  std::string list;
  for (const ChainSnapshot& snapshot : chain.snapshots()) absl::StrAppend(&list, " ", snapshot.id);
  return list;
}

// Snapshot sN differs from the one before in block N.
uint64_t NumberOf(const std::string& id) { return std::stoull(id.substr(1)); }

void Append(ChangeChain& chain, uint64_t number) {
  const std::string newest = chain.snapshots().back().id;
  const std::string id = absl::StrCat("s", number);
  Note(absl::StrCat("try", ListOf(chain), " ", id));
  Set blocks;
  for (uint64_t block = NumberOf(newest) + 1; block <= number; ++block) blocks.insert(block);
  if (chain.Append(MapOf(blocks, newest, id)).ok()) Note("done" + ListOf(chain));
}

void Remove(ChangeChain& chain, const std::string& id) {
  std::string rest;
  for (const ChainSnapshot& snapshot : chain.snapshots()) {
    if (snapshot.id != id) absl::StrAppend(&rest, " ", snapshot.id);
  }
  if (rest.empty()) return;
  Note("try" + rest);
  if (chain.Remove(id).ok()) Note("done" + ListOf(chain));
}

void WorkOnAChain(const std::string& directory) {
  Note("try s0");
  auto chain = ChangeChain::Create(directory, "vol", kBlock, {"s0", kVolume.capacity});
  if (!chain.ok()) return;
  Note("done s0");
  for (uint64_t number = 1; number <= 5; ++number) Append(**chain, number);
  Remove(**chain, "s2");
  Remove(**chain, "s0");
  Append(**chain, 6);
  Append(**chain, 8);
}

std::string JudgeChain(const std::string& directory, const Notes& notes) {
  std::vector<std::string> possible;
  bool acknowledged = false;
  for (const std::string& note : notes) {
    if (note.rfind("done", 0) == 0) {
      possible.clear();
      acknowledged = true;
    }
    possible.push_back(note.substr(note.find(' ')));
  }
  const auto chain = ChangeChain::Open(directory, Access::kRead);
  if (!chain.ok()) {
    return absl::IsNotFound(chain.status()) && !acknowledged ? "" : chain.status().ToString();
  }
  const std::string list = ListOf(**chain);
  if (std::find(possible.begin(), possible.end(), list) == possible.end()) {
    return "snapshots" + list;
  }
  if (const absl::Status status = (*chain)->Verify(); !status.ok()) return status.ToString();
  const std::string first = (*chain)->snapshots().front().id;
  const std::string last = (*chain)->snapshots().back().id;
  const auto delta = (*chain)->Delta(first, last);
  if (!delta.ok()) return delta.status().ToString();
  Blocks expected;
  for (uint64_t n = NumberOf(first) + 1; n <= NumberOf(last); ++n) expected.push_back(n);
  const Blocks found = BlocksOf(**delta);
  return found == expected ? ""
                           : absl::StrCat("from ", first, " to ", last, " expected ",
                                          testing::PrintToString(expected), ", found ",
                                          testing::PrintToString(found));
}

TEST_F(PowerLoss, AChainHasASnapshotOrHasItNot) {
  Check(Record([&] { WorkOnAChain(live_ + "/c"); }),
        [&](const Notes& notes) { return JudgeChain(after_ + "/c", notes); });
}

// The next process builds on names that the killed one created but did not sync.
TEST_F(PowerLoss, AChainAfterAKill) {
  CheckAfterKills([&] { WorkOnAChain(live_ + "/c"); },
                  [&] {
                    auto chain = ChangeChain::Open(live_ + "/c", Access::kChange);
                    if (!chain.ok()) return;
                    Append(**chain, 9);
                    Remove(**chain, (*chain)->snapshots().front().id);
                  },
                  [&](const Notes& notes) { return JudgeChain(after_ + "/c", notes); }, 40);
}

// ---- trackers

TrackerOptions OptionsAt(const std::string& directory) {
  return {.geometry = kVolume,
          .volume = "vol",
          .base = "first",
          .directory = directory,
          .region_bytes = 10 * kBlock};
}

void Write(ChangeTracker& tracker, uint64_t block) {
  Note(absl::StrCat("try ", block));
  if (tracker.Begin({block * kBlock, kBlock}).ok()) Note(absl::StrCat("block ", block));
}

void WorkWithATracker(const std::string& directory) {
  auto made = ChangeTracker::Create(OptionsAt(directory));
  if (!made.ok()) return;
  Note("created");
  ChangeTracker& tracker = **made;
  Write(tracker, 1);
  Write(tracker, 301);
  tracker.Checkpoint().IgnoreError();
  Write(tracker, 2);
  // Several records at once, across sectors.
  Note("try 400-800");
  if (tracker.Mark({400 * kBlock, 401 * kBlock}).ok()) Note("block 400-800");
  if (tracker.OpenEpoch("next").ok()) {
    Note("epoch");
    Write(tracker, 901);
    const auto map = tracker.CloseEpoch();
    if (map.ok()) {
      Note("map");
      Write(tracker, 911);
      Note("acknowledge");
      tracker.Acknowledge(map->identity()).IgnoreError();
    }
  }
  Write(tracker, 11);
  tracker.Checkpoint().IgnoreError();
  Write(tracker, 321);
  if (tracker.OpenEpoch("last").ok()) tracker.CancelEpoch().IgnoreError();
  Write(tracker, 21);
  tracker.Close().IgnoreError();
}

void GoOnWithATracker(const std::string& directory) {
  auto made = ChangeTracker::Recover(OptionsAt(directory));
  if (!made.ok()) return;
  Write(**made, 71);
  (*made)->Checkpoint().IgnoreError();
  Write(**made, 951);
  (*made)->Close().IgnoreError();
}

// The expected state, from the notes.
struct Tracked {
  explicit Tracked(const Notes& notes) {
    for (const std::string& note : notes) {
      const std::string word = note.substr(0, note.find(' '));
      created |= word == "created";
      if (word == "epoch") {
        older = std::exchange(newer, {});
        opened = window = true;
      } else if (word == "map") {
        window = false;
      } else if (word == "acknowledge") {
        acknowledged = true;
      } else if (word == "try" || word == "block") {
        const size_t dash = note.find('-');
        const uint64_t first = std::stoull(note.substr(word.size() + 1));
        const uint64_t last =
            dash == std::string::npos ? first : std::stoull(note.substr(dash + 1));
        for (uint64_t block = first; block <= last; ++block) {
          tried.insert(block);
          if (word == "block") newer.insert(block);
          // Written within a window: in both epochs.
          if (word == "block" && window) older.insert(block);
        }
      }
    }
  }

  Set older, newer, tried;
  bool created = false, opened = false, acknowledged = false, window = false;
};

std::string JudgeTracker(const std::string& directory, const Notes& notes) {
  const Tracked tracked(notes);
  auto tracker = ChangeTracker::Recover(OptionsAt(directory));
  if (!tracker.ok()) {
    // Nothing was promised; that no tracker or no history exists must be reported.
    return tracked.created ? tracker.status().ToString() : "";
  }
  const std::vector<ChangeTracker::Epoch> epochs = (*tracker)->epochs();
  std::vector<ChangeMap> maps;
  if (epochs.size() == 2 && epochs[1].base == "last") {
    // That snapshot was never taken.
    if (const absl::Status status = (*tracker)->CancelEpoch(); !status.ok()) {
      return status.ToString();
    }
  } else if (epochs.size() == 2) {
    auto map = (*tracker)->CloseEpoch();
    if (!map.ok()) return map.status().ToString();
    maps.push_back(*std::move(map));
  }
  auto map = (*tracker)->Changes();
  if (!map.ok()) return map.status().ToString();
  maps.push_back(*std::move(map));
  for (size_t i = 0; i < maps.size(); ++i) {
    if (!epochs[i].exact) continue;
    for (const uint64_t block : BlocksOf(maps[i])) {
      if (tracked.tried.contains(block)) continue;
      return absl::StrCat("epoch ", i, " is said to be exact, and has block ", block,
                          ", which was never written");
    }
  }
  const auto lacks = [](const ChangeMap& epoch, const Set& blocks, const char* when) {
    const testing::AssertionResult has = HasBlocks(epoch, blocks);
    return has ? "" : absl::StrCat(when, ": ", has.message());
  };
  // The epoch was still being opened; everything is in the one before.
  if (maps.size() == 2 && !tracked.opened) {
    return lacks(maps[0], tracked.newer, "while an epoch is opened");
  }
  if (std::string wrong = lacks(maps.back(), tracked.newer, "the newer epoch"); !wrong.empty()) {
    return wrong;
  }
  const bool older = tracked.opened && !tracked.acknowledged;
  return older ? lacks(maps[0], tracked.older, "the older epoch") : "";
}

TEST_F(PowerLoss, ATrackerNeverUnderReports) {
  Check(Record([&] { WorkWithATracker(live_ + "/t"); }),
        [&](const Notes& notes) { return JudgeTracker(after_ + "/t", notes); });
}

TEST_F(PowerLoss, ATrackerAfterAKill) {
  CheckAfterKills([&] { WorkWithATracker(live_ + "/t"); }, [&] { GoOnWithATracker(live_ + "/t"); },
                  [&](const Notes& notes) { return JudgeTracker(after_ + "/t", notes); }, 8);
}

// Closed cleanly, then killed or out of power while it is opened again.
TEST_F(PowerLoss, ATrackerThatIsOpenedAgain) {
  const auto work = [&] {
    WorkWithATracker(live_ + "/t");
    GoOnWithATracker(live_ + "/t");
  };
  Check(Record(work), [&](const Notes& notes) { return JudgeTracker(after_ + "/t", notes); });
}

}  // namespace power_loss_test
}  // namespace cbt::test

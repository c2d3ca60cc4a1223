// Data that others lost between snapshots; the numbers are those of table.csv.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/change_chain.h"
#include "cbt/change_map.h"
#include "cbt/change_tracker.h"
#include "tests/map/chain/chains.h"
#include "tests/map/maps.h"
#include "tests/map/tracker/epochs.h"
#include "tests/support/files.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace history_test {

using absl::StatusCode;
using test::Blocks;
using test::BlocksOf;
using test::DeltaOf;
using test::ValueOf;
using Set = std::set<uint64_t>;

constexpr uint64_t kG = 4096;
const ChainOptions kQuick = {.sync = false};

std::string Id(size_t snapshot) { return absl::StrCat("s", snapshot); }

ChangeMap Map(const std::string& base, const std::string& target, const Set& blocks,
              uint64_t volume_blocks = 1024, const std::string& volume = "vol") {
  ChangeMap map = test::MapOf({blocks.begin(), blocks.end()}, {volume_blocks * kG, kG});
  map.set_identity({volume, base, target});
  return map;
}

std::unique_ptr<ChangeChain> NewChain(const test::TempDir& directory,
                                      uint64_t volume_blocks = 1024) {
  return ValueOf(
      ChangeChain::Create(directory / "c", "vol", kG, {"s0", volume_blocks * kG}, kQuick));
}

// Snapshots s0 to s<last>; block k changed up to s<k>.
std::unique_ptr<ChangeChain> ChainTo(const test::TempDir& directory, size_t last) {
  std::unique_ptr<ChangeChain> chain = NewChain(directory);
  for (size_t k = 1; k <= last; ++k) EXPECT_OK(chain->Append(Map(Id(k - 1), Id(k), {k})));
  return chain;
}

std::map<std::string, std::string> FilesIn(const test::TempDir& directory) {
  std::map<std::string, std::string> files;
  for (const std::string& name : directory.Names("c")) {
    files[name] = test::ReadFile(directory / absl::StrCat("c/", name));
  }
  return files;
}

// After a revert the volume continues from an older snapshot. What follows does not continue the
// newest one, whatever its name.
TEST(Disasters, D4AfterARevertTheOldHistoryIsNoBaseForTheNewOne) {
  constexpr size_t kLast = 5;
  for (size_t to = 0; to < kLast; ++to) {
    const test::TempDir directory;
    const auto chain = ChainTo(directory, kLast);
    const Set written = {100 + to};
    for (const std::string name : {"new", "s5"}) {
      EXPECT_FALSE(chain->Append(Map(Id(to), name, written)).ok()) << to;
    }
    EXPECT_EQ(chain->Append(Map(Id(to), "new", written)).code(), StatusCode::kFailedPrecondition);
    // The reverted snapshots must be removed first; their names may be reused.
    for (size_t gone = kLast; gone > to; --gone) ASSERT_OK(chain->Remove(Id(gone)));
    ASSERT_OK(chain->Append(Map(Id(to), "s5", written)));
    for (size_t base = 0; base <= to; ++base) {
      Set want = written;
      for (size_t k = base + 1; k <= to; ++k) want.insert(k);
      EXPECT_EQ(DeltaOf(*chain, Id(base), "s5"), want) << base << ' ' << to;
    }
    for (size_t gone = to + 1; gone < kLast; ++gone) {
      EXPECT_EQ(chain->Delta(Id(gone), "s5").status().code(), StatusCode::kNotFound);
    }
  }
}

// Every history of an object over a few snapshots, one block per history: absent, clean, written,
// deleted.
enum Seen { kNone, kClean, kDirty, kDeleted, kStates };

struct History {
  // The block's contents at each snapshot (0: zeros), and what happened to it up to then.
  std::vector<std::vector<uint64_t>> contents;
  std::vector<Set> changes;
};

History AllHistories(size_t snapshots) {
  size_t count = 1;
  for (size_t i = 0; i < snapshots; ++i) count *= kStates;
  History all{std::vector(snapshots + 1, std::vector<uint64_t>(count)),
              std::vector<Set>(snapshots + 1)};
  uint64_t version = 0;
  for (size_t block = 0; block < count; ++block) {
    size_t rest = block;
    uint64_t holds = 0;
    for (size_t i = 1; i <= snapshots; ++i, rest /= kStates) {
      const auto state = static_cast<Seen>(rest % kStates);
      const uint64_t before = holds;
      if (state == kDirty) holds = ++version;
      if (state == kNone || state == kDeleted) holds = 0;
      if (state == kDirty || holds != before) all.changes[i].insert(block);
      all.contents[i][block] = holds;
    }
  }
  return all;
}

TEST(Disasters, D8EveryHistoryOfAnObjectOverSnapshotsGivesEveryDelta) {
  for (size_t snapshots = 3; snapshots <= 5; ++snapshots) {
    const History all = AllHistories(snapshots);
    const uint64_t blocks = all.contents[0].size();
    ASSERT_OK_AND_ASSIGN(
        const auto tracker,
        ChangeTracker::Create(
            {.geometry = {blocks * kG, kG}, .volume = "vol", .base = "s0", .region_bytes = kG}));
    const test::TempDir directory;
    const auto chain = NewChain(directory, blocks);
    for (size_t i = 1; i <= snapshots; ++i) {
      for (const uint64_t block : all.changes[i]) {
        ASSERT_OK(tracker->Mark({block * kG, kG}));
      }
      ASSERT_OK(tracker->OpenEpoch(Id(i)));
      ASSERT_OK(chain->Append(ValueOf(test::EndEpoch(*tracker))));
    }
    std::vector<size_t> left(snapshots + 1);
    for (size_t i = 0; i <= snapshots; ++i) left[i] = i;
    // With all snapshots, then with one after another removed from the middle.
    for (;;) {
      std::map<std::pair<size_t, size_t>, Set> deltas;
      for (size_t a = 0; a < left.size(); ++a) {
        for (size_t c = a; c < left.size(); ++c) {
          const Set found = DeltaOf(*chain, Id(left[a]), Id(left[c]));
          Set done;
          for (size_t i = left[a] + 1; i <= left[c]; ++i) {
            done.insert(all.changes[i].begin(), all.changes[i].end());
          }
          EXPECT_EQ(found, done) << left[a] << ' ' << left[c];
          for (uint64_t block = 0; block < blocks; ++block) {
            const bool differs = all.contents[left[a]][block] != all.contents[left[c]][block];
            EXPECT_TRUE(!differs || found.contains(block)) << block;
          }
          deltas[{a, c}] = found;
        }
      }
      for (const auto& [pair, found] : deltas) {
        for (size_t b = pair.first; b <= pair.second; ++b) {
          Set united = deltas[{pair.first, b}];
          united.merge(Set(deltas[{b, pair.second}]));
          EXPECT_TRUE(std::includes(united.begin(), united.end(), found.begin(), found.end()));
        }
      }
      if (left.size() == 2 || HasFailure()) break;
      ASSERT_OK(chain->Remove(Id(left[1])));
      left.erase(left.begin() + 1);
    }
  }
}

TEST(Disasters, D18ABaseThatIsGoneIsNotReplacedByAnOlderOne) {
  constexpr size_t kLast = 9;
  for (size_t gone = 0; gone <= kLast; ++gone) {
    const test::TempDir directory;
    const auto chain = ChainTo(directory, kLast);
    ASSERT_OK(chain->Remove(Id(gone)));
    for (size_t other = 0; other <= kLast; ++other) {
      EXPECT_EQ(chain->Delta(Id(gone), Id(other)).status().code(), StatusCode::kNotFound);
      EXPECT_EQ(chain->Delta(Id(other), Id(gone)).status().code(), StatusCode::kNotFound);
    }
    // Nothing is missing between the remaining ones.
    for (size_t base = 0; base <= kLast; ++base) {
      for (size_t target = base; target <= kLast; ++target) {
        if (base == gone || target == gone) continue;
        Set want;
        for (size_t k = base + 1; k <= target; ++k) want.insert(k);
        EXPECT_EQ(DeltaOf(*chain, Id(base), Id(target)), want);
      }
    }
  }
}

TEST(Disasters, D21UnrelatedOrReversedPairsAreRefusedAndLeaveNothingBehind) {
  const test::TempDir directory;
  auto chain = ChainTo(directory, 4);
  const std::map<std::string, std::string> before = FilesIn(directory);
  for (int run = 0; run < 3; ++run) {
    for (size_t base = 0; base <= 4; ++base) {
      for (size_t target = 0; target < base; ++target) {
        EXPECT_EQ(chain->Delta(Id(base), Id(target)).status().code(), StatusCode::kInvalidArgument);
      }
    }
    EXPECT_EQ(chain->Append(Map("s4", "s5", {5}, 1024, "other")).code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(chain->Append(Map("s3", "s5", {5})).code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(chain->Append(Map("x", "s5", {5})).code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(chain->Append(Map("s4", "s3", {5})).code(), StatusCode::kAlreadyExists);
    EXPECT_EQ(FilesIn(directory), before);
    // As another process would start.
    chain.reset();
    ASSERT_OK_AND_ASSIGN(chain,
                         ChangeChain::Open(directory / "c", ChangeChain::Access::kChange, kQuick));
  }
  ASSERT_OK(chain->Append(Map("s4", "s5", {5})));
  EXPECT_EQ(DeltaOf(*chain, "s0", "s5"), (Set{1, 2, 3, 4, 5}));
  EXPECT_OK(chain->Verify());
}

}  // namespace history_test
}  // namespace cbt

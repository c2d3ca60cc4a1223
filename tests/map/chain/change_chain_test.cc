#include "cbt/change_chain.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/watched_file.h"
#include "cbt/change_map_file.h"
#include "map/chain/chain_manifest.h"
#include "tests/map/chain/chains.h"
#include "tests/map/maps.h"
#include "tests/support/cursors.h"
#include "tests/support/files.h"
#include "tests/support/generators.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace change_chain_test {

using test::Blocks;
using test::BlocksOf;
using test::DeltaOf;
using test::ValueOf;
using Set = std::set<uint64_t>;

constexpr uint64_t kG = 4096;
constexpr VolumeGeometry kVolume = {(uint64_t{10} << 16) * kG, kG};
const ChainOptions kQuick = {.sync = false};

ChangeMap Map(const std::string& base, const std::string& target, const Set& blocks,
              const VolumeGeometry& geometry = kVolume) {
  ChangeMap map = test::MapOf({blocks.begin(), blocks.end()}, geometry);
  map.set_identity({"vol", base, target});
  return map;
}

// The expected chain: its snapshots, and the blocks that changed up to each since the previous one.
struct Model {
  std::vector<std::string> ids;
  std::vector<Set> changes;

  Set Delta(size_t base, size_t target) const {
    Set all;
    for (size_t i = base + 1; i <= target; ++i) all.insert(changes[i].begin(), changes[i].end());
    return all;
  }
  void Remove(size_t at) {
    if (at > 0 && at + 1 < ids.size())
      changes[at + 1].insert(changes[at].begin(), changes[at].end());
    ids.erase(ids.begin() + static_cast<long>(at));
    changes.erase(changes.begin() + static_cast<long>(at));
  }
};

TEST(ChangeChainTest, KeepsTheTimesOfItsSnapshots) {
  const test::TempDir directory;
  ASSERT_OK_AND_ASSIGN(auto chain, ChangeChain::Create(directory / "c", "vol", kG,
                                                       {"s0", kVolume.capacity, -1}, kQuick));
  ASSERT_OK(chain->Append(Map("s0", "s1", {1}), 1'700'000'000'000'000'123));
  ASSERT_OK(chain->Append(Map("s1", "s2", {2})));
  ASSERT_OK(chain->Append(Map("s2", "s3", {3}), 0));
  ASSERT_OK(chain->Remove("s1"));
  ASSERT_OK_AND_ASSIGN(const auto again,
                       ChangeChain::Open(directory / "c", ChangeChain::Access::kRead));
  for (const ChangeChain* one : {chain.get(), again.get()}) {
    std::vector<std::optional<int64_t>> times;
    for (const ChainSnapshot& snapshot : one->snapshots()) times.push_back(snapshot.time);
    EXPECT_THAT(times, testing::ElementsAre(-1, std::nullopt, 0));
  }
}

TEST(ChangeChainTest, TellsTheSizesOfItsMaps) {
  const test::TempDir directory;
  ASSERT_OK_AND_ASSIGN(auto chain, ChangeChain::Create(directory / "c", "vol", kG,
                                                       {"s0", kVolume.capacity}, kQuick));
  ASSERT_OK(chain->Append(Map("s0", "s1", {1})));
  ASSERT_OK(chain->Append(Map("s1", "s2", {2})));
  EXPECT_THAT(chain->MapBytes(),
              testing::ElementsAre(0, std::filesystem::file_size(directory / "c/map-1.cbm"),
                                   std::filesystem::file_size(directory / "c/map-2.cbm")));
}

TEST(ChangeChainTest, DeltaOfAnyPair) {
  const test::TempDir directory;
  ASSERT_OK_AND_ASSIGN(auto chain, ChangeChain::Create(directory / "c", "vol", kG,
                                                       {"s0", kVolume.capacity}, kQuick));
  std::vector<Set> changes = {{}};
  for (uint64_t i = 1; i <= 70; ++i) {
    changes.push_back({i, 1000 + i / 7, (uint64_t{3} << 16) + i});
    const std::string base = absl::StrCat("s", i - 1);
    const std::string target = absl::StrCat("s", i);
    ASSERT_OK(chain->Append(Map(base, target, changes[i])));
  }
  // The open chain, and the chain as read from its files.
  ASSERT_OK_AND_ASSIGN(const auto again,
                       ChangeChain::Open(directory / "c", ChangeChain::Access::kRead));
  EXPECT_EQ(again->volume(), "vol");
  EXPECT_EQ(again->granularity(), kG);
  EXPECT_EQ(again->snapshots().size(), 71u);
  EXPECT_OK(again->Verify());
  for (size_t base = 0; base <= 70; ++base) {
    Set want;
    for (size_t target = base; target <= 70; ++target) {
      if (target > base) want.insert(changes[target].begin(), changes[target].end());
      const std::string from = absl::StrCat("s", base);
      const std::string to = absl::StrCat("s", target);
      ASSERT_EQ(DeltaOf(*chain, from, to), want) << from << ' ' << to;
      ASSERT_EQ(DeltaOf(*again, from, to), want) << from << ' ' << to;
    }
  }
}

RC_GTEST_PROP(ChangeChainTest, IsWhatTheModelSaysAfterAnyChanges, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const test::TempDir directory;
  auto chain =
      ValueOf(ChangeChain::Create(directory / "c", "vol", kG, {"0", kVolume.capacity}, kQuick));
  Model model{{"0"}, {{}}};
  for (int step = 1; step < 60; ++step) {
    if (random() % 3 != 0 || model.ids.size() == 1) {
      Set blocks;
      for (uint64_t n = random() % 5; n > 0; --n) blocks.insert(random() % 655360);
      const std::string id = std::to_string(step);
      test::RequireOk(chain->Append(Map(model.ids.back(), id, blocks)));
      model.ids.push_back(id);
      model.changes.push_back(blocks);
    } else {
      const size_t at = random() % 4 == 0 ? 0 : random() % model.ids.size();
      test::RequireOk(chain->Remove(model.ids[at]));
      model.Remove(at);
    }
    if (random() % 10 == 0) {
      chain.reset();
      chain = ValueOf(ChangeChain::Open(directory / "c", ChangeChain::Access::kChange, kQuick));
    }
  }
  test::RequireOk(chain->Verify());
  RC_ASSERT(chain->snapshots().size() == model.ids.size());
  for (size_t base = 0; base < model.ids.size(); ++base) {
    for (size_t target = base; target < model.ids.size(); ++target) {
      RC_ASSERT(DeltaOf(*chain, model.ids[base], model.ids[target]) == model.Delta(base, target));
    }
  }
  // No superfluous file remains.
  const size_t files = directory.Names("c").size();
  RC_ASSERT(files <= 2 + 2 * model.ids.size() + 2 * 6);
}

// Found by the property above: a map merged into the newest one stayed in a union after the newest
// was removed, and was then reported for later snapshots.
TEST(ChangeChainTest, WhatGoesWithTheNewestSnapshotIsInNoUnion) {
  const test::TempDir directory;
  ASSERT_OK_AND_ASSIGN(
      auto chain, ChangeChain::Create(directory / "c", "vol", kG, {"0", kVolume.capacity}, kQuick));
  for (int i = 1; i <= 4; ++i) {
    const Set blocks = {static_cast<uint64_t>(i)};
    ASSERT_OK(chain->Append(Map(std::to_string(i - 1), std::to_string(i), blocks)));
  }
  ASSERT_OK(chain->Remove("3"));
  ASSERT_OK(chain->Remove("4"));
  ASSERT_OK(chain->Append(Map("2", "5", {5})));
  EXPECT_EQ(DeltaOf(*chain, "1", "5"), (Set{2, 5}));
  EXPECT_EQ(DeltaOf(*chain, "0", "5"), (Set{1, 2, 5}));
}

TEST(ChangeChainTest, TakesFewFilesForADelta) {
  const test::TempDir directory;
  ASSERT_OK_AND_ASSIGN(
      auto chain, ChangeChain::Create(directory / "c", "vol", kG, {"0", kVolume.capacity}, kQuick));
  for (int i = 1; i <= 300; ++i) {
    ASSERT_OK(chain->Append(Map(std::to_string(i - 1), std::to_string(i), {7})));
  }
  // Only unopened files may be missing: a delta over 298 maps opens at most 2 * 8.
  size_t opened = 0;
  for (const std::string& name : directory.Names("c")) {
    if (name.find("map-") != 0) continue;
    const std::string path = directory / absl::StrCat("c/", name);
    ASSERT_EQ(rename(path.c_str(), (path + ".away").c_str()), 0);
    // A chain that has opened no file yet.
    ASSERT_OK_AND_ASSIGN(const auto fresh,
                         ChangeChain::Open(directory / "c", ChangeChain::Access::kRead));
    if (!fresh->Delta("1", "299").ok()) ++opened;
    ASSERT_EQ(rename((path + ".away").c_str(), path.c_str()), 0);
  }
  EXPECT_GT(opened, 0u);
  EXPECT_LE(opened, 16u);
}

TEST(ChangeChainTest, RefusesWhatDoesNotContinueIt) {
  const test::TempDir directory;
  ASSERT_OK_AND_ASSIGN(
      auto chain, ChangeChain::Create(directory / "c", "vol", kG, {"a", kVolume.capacity}, kQuick));
  ASSERT_OK(chain->Append(Map("a", "b", {1})));
  EXPECT_EQ(chain->Append(Map("a", "c", {1})).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(chain->Append(Map("b", "a", {1})).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(chain->Append(Map("b", "", {1})).code(), absl::StatusCode::kInvalidArgument);
  ChangeMap foreign = Map("b", "c", {1});
  foreign.set_identity({"other", "b", "c"});
  EXPECT_EQ(chain->Append(foreign).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(chain->Remove("x").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(chain->Delta("a", "x").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(chain->Delta("x", "a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(chain->Delta("b", "a").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DeltaOf(*chain, "b", "b"), Set());
  ASSERT_OK(chain->Remove("b"));
  EXPECT_EQ(chain->Remove("a").code(), absl::StatusCode::kFailedPrecondition);
  // The name may be reused for another snapshot.
  ASSERT_OK(chain->Append(Map("a", "b", {2})));
  EXPECT_EQ(DeltaOf(*chain, "a", "b"), (Set{2}));
  EXPECT_EQ(ChangeChain::Create(directory / "c", "vol", kG, {"a", 1}).status().code(),
            absl::StatusCode::kUnavailable);
  chain.reset();
  EXPECT_EQ(ChangeChain::Create(directory / "c", "vol", kG, {"a", 1}).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ChangeChain::Open(directory / "d", ChangeChain::Access::kRead).status().code(),
            absl::StatusCode::kNotFound);
  ASSERT_OK_AND_ASSIGN(const auto reader,
                       ChangeChain::Open(directory / "c", ChangeChain::Access::kRead));
  EXPECT_EQ(reader->Append(Map("b", "c", {1})).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(reader->Remove("a").code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ChangeChainTest, OneProcessAtATimeChangesIt) {
  const test::TempDir directory;
  ASSERT_OK_AND_ASSIGN(const auto chain, ChangeChain::Create(directory / "c", "vol", kG,
                                                             {"a", kVolume.capacity}, kQuick));
  EXPECT_EQ(ChangeChain::Open(directory / "c", ChangeChain::Access::kChange).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_OK(ChangeChain::Open(directory / "c", ChangeChain::Access::kRead));
}

// A reader keeps cursors while the chain changes underneath.
TEST(ChangeChainTest, MGWhatIsOpenStaysAndWhatIsGoneIsAborted) {
  const test::TempDir directory;
  ASSERT_OK_AND_ASSIGN(
      auto chain, ChangeChain::Create(directory / "c", "vol", kG, {"a", kVolume.capacity}, kQuick));
  ASSERT_OK(chain->Append(Map("a", "b", {1})));
  ASSERT_OK(chain->Append(Map("b", "c", {2})));
  ASSERT_OK_AND_ASSIGN(const auto reader,
                       ChangeChain::Open(directory / "c", ChangeChain::Access::kRead));
  ASSERT_OK_AND_ASSIGN(const auto untouched,
                       ChangeChain::Open(directory / "c", ChangeChain::Access::kRead));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<ExtentCursor> open, reader->Delta("a", "c"));
  ASSERT_OK(chain->Remove("b"));
  EXPECT_EQ(BlocksOf(*open), (Blocks{1, 2}));
  EXPECT_EQ(BlocksOf(*ValueOf(reader->Delta("a", "c"))), (Blocks{1, 2}));
  // A file that it has not opened yet is gone.
  EXPECT_EQ(untouched->Delta("a", "c").status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(
      DeltaOf(*ValueOf(ChangeChain::Open(directory / "c", ChangeChain::Access::kRead)), "a", "c"),
      (Set{1, 2}));
}

TEST(ChangeChainTest, VolumesThatGrowAndShrink) {
  const test::TempDir directory;
  ASSERT_OK_AND_ASSIGN(auto chain,
                       ChangeChain::Create(directory / "c", "vol", kG, {"a", 100 * kG}, kQuick));
  ASSERT_OK(chain->Append(Map("a", "b", {1, 150}, {200 * kG, kG})));
  ASSERT_OK(chain->Append(Map("b", "c", {2}, {50 * kG + 7, kG})));
  ASSERT_OK(chain->Append(Map("c", "d", {3, 110}, {120 * kG, kG})));
  const auto check = [](const ChangeChain& open, const std::string& base, const std::string& target,
                        Set want, uint64_t lost_begin, uint64_t lost_end) {
    for (uint64_t b = lost_begin; b < lost_end; ++b) want.insert(b);
    EXPECT_EQ(DeltaOf(open, base, target), want) << base << target;
  };
  check(*chain, "a", "b", {1, 150}, 0, 0);
  EXPECT_EQ(ValueOf(chain->Delta("a", "b"))->capacity(), 200 * kG);
  // Cut at the target's capacity.
  check(*chain, "a", "c", {1, 2}, 0, 0);
  EXPECT_EQ(ValueOf(chain->Delta("a", "c"))->capacity(), 50 * kG + 7);
  // From byte 50 on, c lost a's blocks. The zeros in d differ from them and are in no map.
  check(*chain, "a", "d", {1, 2, 3, 110}, 50, 100);
  check(*chain, "b", "d", {2, 3, 110}, 50, 120);
  check(*chain, "c", "d", {3, 110}, 0, 0);
  // The loss is still known once the small snapshot is removed.
  ASSERT_OK(chain->Remove("c"));
  check(*chain, "a", "d", {1, 2, 3, 110}, 50, 100);
  check(*chain, "b", "d", {2, 3, 110}, 50, 120);
}

// If maps are too large to unite, the chain must continue without the union.
TEST(ChangeChainTest, GoesOnWithoutUnionsThatAreTooLarge) {
  const test::TempDir directory;
  // Every map fits into this limit, and some unions do.
  const ChainOptions limited = {.sync = false, .max_union_bytes = 400};
  ASSERT_OK_AND_ASSIGN(auto chain, ChangeChain::Create(directory / "c", "vol", kG,
                                                       {"0", kVolume.capacity}, limited));
  Model model{{"0"}, {{}}};
  for (uint64_t i = 1; i <= 40; ++i) {
    // Quiet days first, then 100 scattered blocks per map.
    Set blocks;
    for (uint64_t k = 0; k < (i <= 10 ? 2 : 100); ++k) blocks.insert(1000 * k + 2 * i);
    const std::string id = std::to_string(i);
    ASSERT_OK(chain->Append(Map(model.ids.back(), id, blocks))) << i;
    model.ids.push_back(id);
    model.changes.push_back(blocks);
  }
  const auto check = [&] {
    ASSERT_OK(chain->Verify());
    for (size_t base = 0; base < model.ids.size(); ++base) {
      for (size_t target = base; target < model.ids.size(); ++target) {
        ASSERT_EQ(DeltaOf(*chain, model.ids[base], model.ids[target]), model.Delta(base, target))
            << model.ids[base] << ' ' << model.ids[target];
      }
    }
  };
  check();
  const auto nodes = [&] {
    const auto bytes = test::ReadFile<std::vector<uint8_t>>(directory / "c/CHAIN");
    return DecodeManifest(bytes, "CHAIN")->nodes;
  };
  EXPECT_TRUE(nodes().contains({2, 1}));   // the quiet days 4 to 7
  EXPECT_FALSE(nodes().contains({1, 8}));  // days 16 and 17
  // Once day 6 is large, the unions that cover it no longer fit.
  for (const size_t at : {size_t{11}, size_t{20}, size_t{5}, size_t{12}}) {
    ASSERT_OK(chain->Remove(model.ids[at]));
    model.Remove(at);
    check();
  }
  chain.reset();
  ASSERT_OK_AND_ASSIGN(chain,
                       ChangeChain::Open(directory / "c", ChangeChain::Access::kChange, kQuick));
  check();
}

TEST(ChangeChainTest, OtherGranularitiesAreRoundedOutward) {
  const test::TempDir directory;
  ASSERT_OK_AND_ASSIGN(auto chain,
                       ChangeChain::Create(directory / "c", "vol", kG, {"a", 100 * kG}, kQuick));
  ASSERT_OK(chain->Append(Map("a", "b", {9}, {100 * kG, 512})));
  ASSERT_OK(chain->Append(Map("b", "c", {2}, {100 * kG, 2 * kG})));
  EXPECT_EQ(DeltaOf(*chain, "a", "b"), (Set{1}));
  EXPECT_EQ(DeltaOf(*chain, "a", "c"), (Set{1, 4, 5}));
}

TEST(ChangeChainTest, SweepsWhatACrashLeftBehind) {
  const test::TempDir directory;
  ASSERT_OK_AND_ASSIGN(
      auto chain, ChangeChain::Create(directory / "c", "vol", kG, {"a", kVolume.capacity}, kQuick));
  ASSERT_OK(chain->Append(Map("a", "b", {1})));
  chain.reset();
  const std::vector<std::string> before = directory.Names("c");
  for (const char* name :
       {"c/map-77.cbm", "c/map-01.cbm", "c/map-1x.cbm", "c/map-.cbm",
        "c/map-99999999999999999999.cbm", "c/.map-3.cbm.12-0.partial", "c/.CHAIN.12-1.partial"}) {
    directory.Write(name, "left");
  }
  for (const char* name : {"c/notes.txt", "c/map-of-the-city.txt", "c/other.cbm", "c/.map-4.cbm",
                           "c/.notes.12-2.partial"}) {
    directory.Write(name, "not ours");
  }
  ASSERT_OK(ChangeChain::Open(directory / "c", ChangeChain::Access::kRead));
  EXPECT_EQ(directory.Names("c").size(), before.size() + 12);
  ASSERT_OK(ChangeChain::Open(directory / "c", ChangeChain::Access::kChange));
  EXPECT_EQ(directory.Names("c").size(), before.size() + 5);
}

TEST(ChangeChainTest, FindsFilesThatAreNotItsOwn) {
  const test::TempDir directory;
  ASSERT_OK_AND_ASSIGN(
      auto chain, ChangeChain::Create(directory / "c", "vol", kG, {"a", kVolume.capacity}, kQuick));
  ASSERT_OK(chain->Append(Map("a", "b", {1})));
  const std::string path = directory / "c/map-1.cbm";
  // Valid and of the same snapshots, but not the map that was appended.
  ASSERT_OK(WriteChangeMap(Map("a", "b", {2}), path));
  EXPECT_EQ(chain->Delta("a", "b").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(chain->Verify().code(), absl::StatusCode::kDataLoss);
  // It must not end up in a union either, nor in another snapshot's map.
  ASSERT_OK(chain->Append(Map("b", "c", {3})));
  EXPECT_EQ(chain->Remove("b").code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(chain->Contains("b"));
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_EQ(chain->Verify().code(), absl::StatusCode::kDataLoss);
}

// What fails in the middle of a change is undone in memory too.
TEST(ChangeChainTest, AChangeThatFailsLeavesTheChainAsItWas) {
  const test::TempDir directory;
  ASSERT_OK_AND_ASSIGN(
      auto chain, ChangeChain::Create(directory / "c", "vol", kG, {"0", kVolume.capacity}, kQuick));
  ASSERT_OK(chain->Append(Map("0", "1", {1})));
  ASSERT_OK(chain->Append(Map("1", "2", {2})));
  const auto expect_unchanged = [&](const std::string& newest) {
    EXPECT_EQ(chain->newest().id, newest);
    EXPECT_EQ(chain->snapshots().back().id, newest);
    for (const ChainSnapshot& snapshot : chain->snapshots()) {
      EXPECT_TRUE(chain->Contains(snapshot.id)) << snapshot.id;
    }
    ASSERT_OK_AND_ASSIGN(const auto read,
                         ChangeChain::Open(directory / "c", ChangeChain::Access::kRead));
    EXPECT_EQ(read->snapshots().size(), chain->snapshots().size());
  };
  // The maps of "2" and "3" get a union, which the damaged one prevents.
  ASSERT_OK_AND_ASSIGN(const std::string good, ReadSmallFile(directory / "c/map-2.cbm"));
  directory.Write("c/map-2.cbm", "damaged");
  EXPECT_EQ(chain->Append(Map("2", "3", {3})).code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(chain->Contains("3"));
  expect_unchanged("2");
  EXPECT_EQ(chain->Remove("1").code(), absl::StatusCode::kDataLoss);
  expect_unchanged("2");
  directory.Write("c/map-2.cbm", good);
  ASSERT_OK(chain->Append(Map("2", "3", {3})));
  ASSERT_OK(chain->Remove("1"));
  expect_unchanged("3");
  EXPECT_EQ(DeltaOf(*chain, "0", "3"), (Set{1, 2, 3}));
  EXPECT_OK(chain->Verify());
}

TEST(ChangeChainTest, VerifyReadsEveryByteOfEveryMap) {
  const test::TempDir directory;
  ASSERT_OK_AND_ASSIGN(
      auto chain, ChangeChain::Create(directory / "c", "vol", kG, {"a", kVolume.capacity}, kQuick));
  ASSERT_OK(chain->Append(Map("a", "b", {1, 5, 6})));
  const std::string path = directory / "c/map-1.cbm";
  ASSERT_OK_AND_ASSIGN(const std::string good, ReadSmallFile(path));
  for (size_t i = 0; i < good.size(); ++i) {
    std::string damaged = good;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    directory.Write("c/map-1.cbm", damaged);
    EXPECT_EQ(chain->Verify().code(), absl::StatusCode::kDataLoss) << "byte " << i;
  }
  directory.Write("c/map-1.cbm", good);
  EXPECT_OK(chain->Verify());
}

// A checksum does not prove good faith: a union of old and new bytes would carry a valid checksum
// forever. Only the time stamp changes here, because that is all that can be observed.
TEST(ChangeChainTest, AFileThatIsWrittenWhileItIsUnitedGoesIntoNoUnion) {
  const test::TempDir directory;
  const std::string path = directory / "c";
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (long now = 1; !done; ++now) {
      const timespec times[] = {{now, 0}, {now, 0}};
      for (int i = 1; i < 6; ++i) {
        ::utimensat(AT_FDCWD, absl::StrCat(path, "/map-", i, ".cbm").c_str(), times, 0);
      }
    }
  });
  std::unique_ptr<ChangeChain> chain;
  absl::Status status;
  uint64_t last = 0;
  // Most attempts run into the write; on a busy machine the writer may not get scheduled for long.
  for (int tries = 0; tries < 20000 && status.ok(); ++tries) {
    chain.reset();
    std::filesystem::remove_all(path);
    ASSERT_OK_AND_ASSIGN(chain,
                         ChangeChain::Create(path, "vol", kG, {"s0", kVolume.capacity}, kQuick));
    for (last = 0; last < 4 && status.ok(); last += status.ok() ? 1 : 0) {
      status = chain->Append(Map(absl::StrCat("s", last), absl::StrCat("s", last + 1),
                                 {last, last + (uint64_t{3} << 16)}));
    }
  }
  done = true;
  writer.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_EQ(chain->snapshots().size(), last + 1);
  EXPECT_OK(chain->Verify());
  // The failed attempt does not block the next.
  EXPECT_OK(chain->Append(Map(absl::StrCat("s", last), "next", {7})));
}

TEST(ChangeChainTest, NamesInAManifestAreText) {
  ChainManifest manifest;
  manifest.volume = "vol";
  manifest.granularity = kG;
  manifest.next_slot = 1;
  manifest.entries.push_back({"monday", 0, kG, kG, {}});
  ASSERT_OK(DecodeManifest(EncodeManifest(manifest), "CHAIN"));
  for (const std::string& wrong :
       {std::string("\xff"), std::string("\xe2\x82"), std::string("a\0b", 3),
        std::string(kMaxMapNameBytes + 1, 'x')}) {
    ChainManifest other = manifest;
    other.volume = wrong;
    EXPECT_EQ(DecodeManifest(EncodeManifest(other), "CHAIN").status().code(),
              absl::StatusCode::kDataLoss);
    other = manifest;
    other.entries[0].id = wrong;
    EXPECT_EQ(DecodeManifest(EncodeManifest(other), "CHAIN").status().code(),
              absl::StatusCode::kDataLoss);
  }
}

TEST(ChangeChainTest, EveryFlippedBitAndLengthOfAManifestIsFound) {
  const test::TempDir directory;
  ASSERT_OK_AND_ASSIGN(
      auto chain, ChangeChain::Create(directory / "c", "vol", kG, {"0", kVolume.capacity}, kQuick));
  for (int i = 1; i < 6; ++i) {
    ASSERT_OK(chain->Append(Map(std::to_string(i - 1), std::to_string(i), {7})));
  }
  auto bytes = test::ReadFile<std::vector<uint8_t>>(directory / "c/CHAIN");
  ASSERT_OK(DecodeManifest(bytes, "CHAIN"));
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ 1u << bit % 8);
    EXPECT_FALSE(DecodeManifest(bytes, "CHAIN").ok()) << "bit " << bit;
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ 1u << bit % 8);
  }
  for (size_t size = 0; size < bytes.size(); ++size) {
    const absl::Status status = DecodeManifest({bytes.data(), size}, "CHAIN").status();
    EXPECT_FALSE(status.ok()) << size;
    // Magic, version and checksum: anything shorter must be rejected before it is parsed.
    if (size >= 8 && size < 20) {
      EXPECT_THAT(std::string(status.message()), testing::HasSubstr("truncated")) << size;
    }
  }
  bytes[8] = 9;
  EXPECT_EQ(DecodeManifest(bytes, "CHAIN").status().message(),
            "CHAIN: has version 9.0 of the chain format; this program reads versions 1 to 2");
}

}  // namespace change_chain_test
}  // namespace cbt

// Maps and chains beside images, as the directory provider reads them.
#include "source/directory/volume_maps.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "cbt/change_map_file.h"
#include "cbt/source/directory_provider.h"
#include "tests/map/maps.h"
#include "tests/support/cursors.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace volume_maps_test {

using test::ValueOf;

using absl::StatusCode;
using reference::Ranges;

constexpr uint64_t kG = 4096;
constexpr VolumeGeometry kVolume = {10 * kG, kG};

class VolumeMapsTest : public testing::Test {
 protected:
  VolumeMapsTest() {
    std::filesystem::create_directories(dir_ / "root/pool/vol1");
    provider_ = ValueOf(MakeDirectoryProvider(dir_ / "root"));
  }

  void Write(const std::string& file, const ChangeMapIdentity& identity, const test::Blocks& blocks,
             const VolumeGeometry& geometry = kVolume) {
    ChangeMap map = test::MapOf(blocks, geometry);
    map.set_identity(identity);
    ASSERT_OK(WriteChangeMap(map, dir_ / ("root/pool/vol1/" + file)));
  }
  void WriteImage(const std::string& name, size_t size, char fill) {
    dir_.Write("root/pool/vol1/" + name, std::string(size, fill));
  }
  void Damage(const std::string& file, long from_end) {
    const std::string path = dir_ / ("root/pool/vol1/" + file);
    std::fstream stream(path, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(-from_end, std::ios::end);
    stream.put('\x55');
  }
  absl::StatusOr<MetadataSource> Delta(const std::string& base, const std::string& target) {
    return provider_->OpenDelta("pool/vol1/" + base, "pool/vol1/" + target, context_);
  }
  // A chain of adjacent snapshots; `blocks` changed up to each but the first.
  void WriteChain(const std::string& file, const std::vector<std::string>& snapshots,
                  const std::vector<test::Blocks>& blocks, uint64_t granularity = kG) {
    auto chain = ChangeChain::Create(dir_ / ("root/pool/vol1/" + file), "vol1", granularity,
                                     {snapshots[0], kVolume.capacity});
    ASSERT_OK(chain);
    for (size_t i = 1; i < snapshots.size(); ++i) {
      ChangeMap map = test::MapOf(blocks[i - 1], kVolume);
      map.set_identity({"vol1", snapshots[i - 1], snapshots[i]});
      ASSERT_OK((*chain)->Append(map));
    }
  }
  void Remove(const std::string& file) {
    std::filesystem::remove_all(dir_ / ("root/pool/vol1/" + file));
  }
  // Checks that there is no answer and that the error names all of `files`.
  void ExpectContradiction(const absl::Status& status, const std::vector<std::string>& files) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    for (const std::string& file : files) {
      EXPECT_NE(status.message().find(file), std::string::npos) << status;
    }
  }
  Ranges Ranges_(absl::StatusOr<MetadataSource> source) {
    return ValueOf(test::Drain(*ValueOf(std::move(source)).cursor));
  }

  const test::TempDir dir_;
  const Secrets secrets_;
  const StreamContext context_{{}, secrets_};
  std::unique_ptr<SnapshotProvider> provider_;
};

TEST_F(VolumeMapsTest, MapsAnswerWithoutImages) {
  Write("any-name.cbm", {"vol1", "mon", "tue"}, {1, 2, 9});
  EXPECT_EQ(Ranges_(Delta("mon", "tue")), (Ranges{{kG, 2 * kG}, {9 * kG, kG}}));
  // It answers neither the reverse delta nor others.
  EXPECT_EQ(Delta("tue", "mon").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Delta("mon", "wed").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Delta("sun", "tue").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(provider_->OpenAllocated("pool/vol1/tue", context_).status().code(),
            StatusCode::kFailedPrecondition);
  Write("whole.cbm", {"vol1", "", "tue"}, {0, 1});
  EXPECT_EQ(Ranges_(provider_->OpenAllocated("pool/vol1/tue", context_)), (Ranges{{0, 2 * kG}}));
  // A map does not make a snapshot.
  EXPECT_EQ(provider_->OpenAllocated("pool/vol1/any-name", context_).status().code(),
            StatusCode::kNotFound);
}

TEST_F(VolumeMapsTest, MapsGoBeforeImages) {
  WriteImage("mon.img", 10 * kG, 'a');
  WriteImage("tue.img", 10 * kG, 'b');
  EXPECT_EQ(Ranges_(Delta("mon", "tue")), (Ranges{{0, 10 * kG}}));
  Write("mon.cbm", {"vol1", "mon", "tue"}, {5});
  EXPECT_EQ(Ranges_(Delta("mon", "tue")), (Ranges{{5 * kG, kG}}));
  // Images answer what no map covers.
  EXPECT_EQ(Ranges_(Delta("tue", "mon")), (Ranges{{0, 10 * kG}}));
  EXPECT_OK(provider_->OpenAllocated("pool/vol1/mon", context_));
}

TEST_F(VolumeMapsTest, E12BaseDeletedButMapStored) {
  WriteImage("tue.img", 10 * kG, 'b');
  EXPECT_EQ(Delta("mon", "tue").status().code(), StatusCode::kNotFound);
  Write("a.cbm", {"vol1", "mon", "tue"}, {5});
  EXPECT_EQ(Ranges_(Delta("mon", "tue")), (Ranges{{5 * kG, kG}}));
}

TEST_F(VolumeMapsTest, NamesMayBeWholeIdsAndOtherVolumesAreNotOurs) {
  Write("a.cbm", {"pool/vol1", "pool/vol1/mon", "pool/vol1/tue"}, {1});
  Write("b.cbm", {"", "tue", "wed"}, {2});
  Write("c.cbm", {"vol2", "wed", "thu"}, {3});
  Write("d.cbm", {"ol1", "thu", "fri"}, {3});
  EXPECT_EQ(Ranges_(Delta("mon", "tue")), (Ranges{{kG, kG}}));
  EXPECT_EQ(Ranges_(Delta("tue", "wed")), (Ranges{{2 * kG, kG}}));
  EXPECT_FALSE(Delta("wed", "thu").ok());
  EXPECT_EQ(Delta("thu", "fri").status().code(), StatusCode::kNotFound);
}

TEST_F(VolumeMapsTest, ASmallerGranularityIsRoundedOutward) {
  Write("a.cbm", {"vol1", "mon", "tue"}, {9, 30}, {10 * kG, 512});
  Write("b.cbm", {"vol1", "tue", "wed"}, {1}, {10 * kG, 2 * kG});
  EXPECT_EQ(Ranges_(Delta("mon", "tue")), (Ranges{{kG, kG}, {3 * kG, kG}}));
  EXPECT_EQ(Ranges_(Delta("tue", "wed")), (Ranges{{2 * kG, 2 * kG}}));
}

TEST_F(VolumeMapsTest, E20MapsThatCannotBeTrustedAreRefused) {
  WriteImage("mon.img", 10 * kG, 'a');
  WriteImage("tue.img", 10 * kG, 'b');
  Write("a.cbm", {"vol1", "mon", "tue"}, {5}, {11 * kG, kG});
  EXPECT_EQ(Delta("mon", "tue").status().code(), StatusCode::kFailedPrecondition);
  Write("a.cbm", {"vol1", "mon", "tue"}, {5});
  EXPECT_OK(Delta("mon", "tue"));
  // One pair that differs, one that agrees.
  Write("b.cbm", {"vol1", "mon", "tue"}, {6});
  EXPECT_EQ(Delta("mon", "tue").status().code(), StatusCode::kFailedPrecondition);
  Write("b.cbm", {"vol1", "mon", "tue"}, {5});
  EXPECT_OK(Delta("mon", "tue"));
  std::filesystem::remove(dir_ / "root/pool/vol1/b.cbm");
  // Damage outside the header is found before the stream starts.
  Damage("a.cbm", 1);
  const absl::Status status = Delta("mon", "tue").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("a.cbm: offset "), std::string::npos) << status;
  EXPECT_EQ(status.message().find(dir_.path()), std::string::npos) << status;
}

TEST_F(VolumeMapsTest, AFileThatCannotBeReadIsNotSilentlyMissing) {
  Write("a.cbm", {"vol1", "mon", "tue"}, {5});
  Write("b.cbm", {"vol1", "tue", "wed"}, {5});
  Damage("a.cbm", 60);
  // Its pair is unknown; other maps still answer.
  EXPECT_EQ(Delta("mon", "tue").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_OK(Delta("tue", "wed"));
}

TEST_F(VolumeMapsTest, WhatCannotBeOpenedIsNotSilentlyMissing) {
  Write("b.cbm", {"vol1", "tue", "wed"}, {5});
  EXPECT_EQ(Delta("mon", "tue").status().code(), StatusCode::kNotFound);
  for (const std::string name : {"a.cbm", "a.chain"}) {
    dir_.WriteClosed("root/pool/vol1/" + name);
    // A chain is a directory; a file under such a name is not a chain.
    const auto code = name == "a.cbm" ? StatusCode::kFailedPrecondition : StatusCode::kNotFound;
    EXPECT_EQ(Delta("mon", "tue").status().code(), code) << name;
    EXPECT_OK(Delta("tue", "wed"));
    std::filesystem::remove(dir_ / ("root/pool/vol1/" + name));
  }
}

TEST_F(VolumeMapsTest, ASnapshotThatIsNotReadyStaysSo) {
  WriteImage("tue.partial", 10 * kG, 'b');
  Write("a.cbm", {"vol1", "mon", "tue"}, {5});
  EXPECT_EQ(Delta("mon", "tue").status().code(), StatusCode::kUnavailable);
}

TEST_F(VolumeMapsTest, ChainsAnswerForAnyPair) {
  const std::string path = dir_ / "root/pool/vol1/history.chain";
  ASSERT_OK_AND_ASSIGN(auto chain,
                       ChangeChain::Create(path, "vol1", kG, {"mon", kVolume.capacity}));
  const char* const days[] = {"mon", "tue", "wed", "thu"};
  for (uint64_t day = 1; day < 4; ++day) {
    ChangeMap map = test::MapOf({2 * day}, kVolume);
    map.set_identity({"vol1", days[day - 1], days[day]});
    ASSERT_OK(chain->Append(map));
  }
  EXPECT_EQ(Ranges_(Delta("mon", "wed")), (Ranges{{2 * kG, kG}, {4 * kG, kG}}));
  EXPECT_EQ(Ranges_(Delta("tue", "thu")), (Ranges{{4 * kG, kG}, {6 * kG, kG}}));
  EXPECT_EQ(Delta("thu", "tue").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Delta("mon", "fri").status().code(), StatusCode::kNotFound);
  // A chain may change while it is served.
  ASSERT_OK(chain->Remove("tue"));
  EXPECT_EQ(Ranges_(Delta("mon", "wed")), (Ranges{{2 * kG, kG}, {4 * kG, kG}}));
  EXPECT_EQ(Delta("mon", "tue").status().code(), StatusCode::kNotFound);
  std::filesystem::resize_file(path + "/CHAIN", 40);
  EXPECT_EQ(Delta("mon", "wed").status().code(), StatusCode::kFailedPrecondition);
}

// Last week's chain is beside this week's, with the same snapshot names.
TEST_F(VolumeMapsTest, ChainsThatDifferAreRefused) {
  WriteChain("history-old.chain", {"mon", "tue"}, {{1}});
  EXPECT_EQ(Ranges_(Delta("mon", "tue")), (Ranges{{kG, kG}}));
  WriteChain("history.chain", {"mon", "tue", "wed"}, {{2, 3}, {9}});
  ExpectContradiction(Delta("mon", "tue").status(), {"history-old.chain", "history.chain"});
  // What only one of them covers is answered.
  EXPECT_EQ(Ranges_(Delta("tue", "wed")), (Ranges{{9 * kG, kG}}));
  EXPECT_EQ(Ranges_(Delta("mon", "wed")), (Ranges{{2 * kG, 2 * kG}, {9 * kG, kG}}));
  // A smaller answer also differs, even by its last extent alone.
  Remove("history-old.chain");
  WriteChain("history-old.chain", {"mon", "tue"}, {{2}});
  ExpectContradiction(Delta("mon", "tue").status(), {"history-old.chain", "history.chain"});
  Remove("history-old.chain");
  WriteChain("history-old.chain", {"mon", "tue"}, {{2, 3, 8}});
  ExpectContradiction(Delta("mon", "tue").status(), {"history-old.chain", "history.chain"});
  // A copy does not contradict.
  Remove("history-old.chain");
  WriteChain("history-old.chain", {"mon", "tue"}, {{2, 3}});
  EXPECT_EQ(Ranges_(Delta("mon", "tue")), (Ranges{{2 * kG, 2 * kG}}));
  // A third one does.
  WriteChain("x.chain", {"sun", "mon", "tue"}, {{4}, {5}});
  ExpectContradiction(Delta("mon", "tue").status(), {"history-old.chain", "x.chain"});
  Remove("x.chain");
  // They disagree about which snapshot is older.
  WriteChain("x.chain", {"tue", "mon"}, {{2, 3}});
  ExpectContradiction(Delta("mon", "tue").status(), {"history-old.chain", "x.chain"});
  ExpectContradiction(Delta("tue", "mon").status(), {"history-old.chain", "x.chain"});
  Remove("x.chain");
  EXPECT_EQ(Delta("tue", "mon").status().code(), StatusCode::kInvalidArgument);
}

TEST_F(VolumeMapsTest, AMapThatAChainContradictsIsRefused) {
  WriteChain("history.chain", {"mon", "tue", "wed"}, {{2, 3}, {9}});
  Write("stale.cbm", {"vol1", "mon", "tue"}, {1});
  ExpectContradiction(Delta("mon", "tue").status(), {"stale.cbm", "history.chain"});
  EXPECT_EQ(Ranges_(Delta("tue", "wed")), (Ranges{{9 * kG, kG}}));
  // Of a volume of another size, with the same extents.
  Write("stale.cbm", {"vol1", "mon", "tue"}, {2, 3}, {11 * kG, kG});
  ExpectContradiction(Delta("mon", "tue").status(), {"stale.cbm", "history.chain"});
  // Left beside the chain that it was appended to, under another name.
  Write("stale.cbm", {"vol1", "mon", "tue"}, {2, 3});
  EXPECT_EQ(Ranges_(Delta("mon", "tue")), (Ranges{{2 * kG, 2 * kG}}));
  Write("again.cbm", {"", "pool/vol1/mon", "pool/vol1/tue"}, {2, 3});
  EXPECT_EQ(Ranges_(Delta("mon", "tue")), (Ranges{{2 * kG, 2 * kG}}));
  Write("again.cbm", {"", "pool/vol1/mon", "pool/vol1/tue"}, {2});
  ExpectContradiction(Delta("mon", "tue").status(), {"again.cbm"});
}

// A chain rounds appended maps. Maps that are equal after rounding may differ before, so the finer
// one does not answer.
TEST_F(VolumeMapsTest, TheCoarsestOfSeveralAnswers) {
  WriteChain("history.chain", {"mon", "tue"}, {{2}}, 2 * kG);
  for (const uint64_t block : {uint64_t{2}, uint64_t{3}}) {
    Write("a.cbm", {"vol1", "mon", "tue"}, {block});
    EXPECT_EQ(Ranges_(Delta("mon", "tue")), (Ranges{{2 * kG, 2 * kG}})) << block;
  }
  Write("a.cbm", {"vol1", "mon", "tue"}, {4});
  ExpectContradiction(Delta("mon", "tue").status(), {"a.cbm", "history.chain"});
}

TEST_F(VolumeMapsTest, TheRootTakesNoMapOfAnotherVolume) {
  const std::string root = dir_ / "root/pool/vol1";
  std::filesystem::create_directory_symlink(root, dir_ / "link");
  const auto ask = [&](const std::string& path) {
    const auto provider = MakeDirectoryProvider(path);
    EXPECT_OK(provider);
    return (*provider)->OpenDelta("mon", "tue", context_);
  };
  // Also "vol", a prefix of the root's name, and "1", a suffix of it.
  for (const std::string volume : {"some-other-volume", "vol", "1", "root", ".."}) {
    Write("a.cbm", {volume, "mon", "tue"}, {5});
    EXPECT_EQ(ask(root).status().code(), StatusCode::kNotFound) << volume;
  }
  ASSERT_OK_AND_ASSIGN(
      auto chain, ChangeChain::Create(root + "/h.chain", "vol2", kG, {"mon", kVolume.capacity}));
  ChangeMap map = test::MapOf({1}, kVolume);
  map.set_identity({"vol2", "mon", "tue"});
  ASSERT_OK(chain->Append(map));
  EXPECT_EQ(ask(root).status().code(), StatusCode::kNotFound);
  // Images answer for themselves then.
  WriteImage("mon.img", 10 * kG, 'a');
  WriteImage("tue.img", 10 * kG, 'b');
  EXPECT_EQ(Ranges_(ask(root)), (Ranges{{0, 10 * kG}}));
  // The volume names that `cbtctl delta` writes: run in the directory, with "./", and with a path.
  for (const std::string volume : {"", ".", "vol1", "pool/vol1"}) {
    Write("a.cbm", {volume, "mon", "tue"}, {5});
    for (const std::string& path : {root, root + "/", root + "/.", dir_ / "link"}) {
      EXPECT_EQ(Ranges_(ask(path)), (Ranges{{5 * kG, kG}})) << volume << ' ' << path;
    }
  }
  // Through a link, the root has the link's name too.
  Write("a.cbm", {"link", "mon", "tue"}, {5});
  EXPECT_EQ(Ranges_(ask(dir_ / "link")), (Ranges{{5 * kG, kG}}));
  EXPECT_EQ(Ranges_(ask(root)), (Ranges{{0, 10 * kG}}));
}

// `cp new.cbm a.cbm` overwrites the file in place while it is read; both versions are valid.
TEST_F(VolumeMapsTest, AMapThatIsWrittenOverWhileItIsToldIsNoAnswer) {
  Write("new", {"vol1", "mon", "tue"}, {2});
  WriteChain("history.chain", {"wed", "thu"}, {{1}});
  const auto directory = std::filesystem::path(dir_ / "root/pool/vol1");
  std::filesystem::path of_chain;
  for (const auto& entry : std::filesystem::directory_iterator(directory / "history.chain")) {
    if (entry.path().extension() == ".cbm") of_chain = entry.path();
  }
  ASSERT_FALSE(of_chain.empty());
  const auto write_over = [&](const std::filesystem::path& file) {
    std::ifstream from(directory / "new", std::ios::binary);
    std::fstream(file, std::ios::binary | std::ios::in | std::ios::out) << from.rdbuf();
  };
  Write("a.cbm", {"vol1", "mon", "tue"}, {1});
  for (const auto& [file, base, target] :
       {std::tuple(directory / "a.cbm", "mon", "tue"), {of_chain, "wed", "thu"}}) {
    // File time stamps tick more slowly than this test runs.
    std::filesystem::last_write_time(
        file, std::filesystem::last_write_time(file) - std::chrono::hours(1));
    const absl::StatusOr<MetadataSource> whole = Delta(base, target);
    ASSERT_OK(whole);
    EXPECT_EQ(ValueOf(test::Drain(*whole->cursor)), (Ranges{{kG, kG}}));
    const absl::StatusOr<MetadataSource> torn = Delta(base, target);
    ASSERT_OK(torn);
    write_over(file);
    const absl::Status status = test::Drain(*torn->cursor).status();
    EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
    EXPECT_NE(status.message().find("was modified"), std::string::npos) << status;
    EXPECT_LT(torn->cursor->covered(), kVolume.capacity);
  }
}

TEST_F(VolumeMapsTest, AMapThatIsReplacedWhileItIsToldIsTheOldOne) {
  Write("a.cbm", {"vol1", "mon", "tue"}, {1});
  const absl::StatusOr<MetadataSource> old = Delta("mon", "tue");
  ASSERT_OK(old);
  Write("a.cbm", {"vol1", "mon", "tue"}, {2});
  EXPECT_EQ(ValueOf(test::Drain(*old->cursor)), (Ranges{{kG, kG}}));
  EXPECT_EQ(Ranges_(Delta("mon", "tue")), (Ranges{{2 * kG, kG}}));
}

// Between the directory listing and the answer.
TEST_F(VolumeMapsTest, AMapThatIsAnotherOneNowIsLookedForAgain) {
  Write("a.cbm", {"vol1", "mon", "tue"}, {1});
  const int root = open((dir_ / "root").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(root, 0);
  OpenMaps open_maps;
  const VolumeMaps maps =
      VolumeMaps::Read(SnapshotDirectory::Read(root, "pool/vol1"), {}, open_maps);
  EXPECT_OK(maps.Delta("mon", "tue"));
  Write("a.cbm", {"vol1", "mon", "tue"}, {2});
  EXPECT_EQ(maps.Delta("mon", "tue").status().code(), StatusCode::kAborted);
  Remove("a.cbm");
  EXPECT_EQ(maps.Delta("mon", "tue").status().code(), StatusCode::kAborted);
  // A file that cannot be opened may still be a map.
  dir_.WriteClosed("root/pool/vol1/a.cbm");
  EXPECT_EQ(maps.Delta("mon", "tue").status().code(), StatusCode::kFailedPrecondition);
  close(root);
}

TEST_F(VolumeMapsTest, NothingLeadsOutOfTheRoot) {
  ChangeMap map = test::MapOf({1}, kVolume);
  map.set_identity({"vol1", "mon", "tue"});
  ASSERT_OK(WriteChangeMap(map, dir_ / "outside.cbm"));
  std::filesystem::create_symlink(dir_ / "outside.cbm", dir_ / "root/pool/vol1/a.cbm");
  ASSERT_OK_AND_ASSIGN(
      auto chain, ChangeChain::Create(dir_ / "outside", "vol1", kG, {"mon", kVolume.capacity}));
  ASSERT_OK(chain->Append(map));
  std::filesystem::create_directory_symlink(dir_ / "outside",
                                            dir_ / "root/pool/vol1/history.chain");
  EXPECT_EQ(Delta("mon", "tue").status().code(), StatusCode::kNotFound);
}

TEST_F(VolumeMapsTest, AttackUTheVersionOfAMapIsWhatItHolds) {
  Write("a.cbm", {"vol1", "mon", "tue"}, {1, 2});
  const std::string first = ValueOf(Delta("mon", "tue")).version;
  EXPECT_FALSE(first.empty());
  // A copy under another name agrees, and so does a rewritten file.
  Write("b.cbm", {"vol1", "mon", "tue"}, {1, 2});
  EXPECT_EQ(ValueOf(Delta("mon", "tue")).version, first);
  Remove("b.cbm");
  Write("a.cbm", {"vol1", "mon", "tue"}, {1, 3});
  EXPECT_NE(ValueOf(Delta("mon", "tue")).version, first);
  Write("whole.cbm", {"vol1", "", "tue"}, {0, 1});
  const std::string allocated =
      ValueOf(provider_->OpenAllocated("pool/vol1/tue", context_)).version;
  Write("whole.cbm", {"vol1", "", "tue"}, {0, 2});
  EXPECT_NE(ValueOf(provider_->OpenAllocated("pool/vol1/tue", context_)).version, allocated);
}

TEST_F(VolumeMapsTest, AttackUTheVersionOfAChainIsThatOfTheMapsInBetween) {
  WriteChain("h.chain", {"mon", "tue", "wed", "thu"}, {{1}, {2}, {3}});
  const std::string first = ValueOf(Delta("mon", "wed")).version;
  EXPECT_FALSE(first.empty());
  EXPECT_NE(ValueOf(Delta("mon", "tue")).version, first);
  EXPECT_NE(ValueOf(Delta("tue", "wed")).version, first);
  // A later snapshot does not interrupt readers of earlier ones.
  {
    auto chain = ChangeChain::Open(dir_ / "root/pool/vol1/h.chain", ChangeChain::Access::kChange);
    ASSERT_OK(chain);
    ChangeMap map = test::MapOf({4}, kVolume);
    map.set_identity({"vol1", "thu", "fri"});
    ASSERT_OK((*chain)->Append(map));
  }
  EXPECT_EQ(ValueOf(Delta("mon", "wed")).version, first);
  Remove("h.chain");
  WriteChain("h.chain", {"mon", "tue", "wed", "thu"}, {{1}, {5}, {3}});
  EXPECT_NE(ValueOf(Delta("mon", "wed")).version, first);
}

}  // namespace volume_maps_test
}  // namespace cbt

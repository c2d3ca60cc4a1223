// Marks: the moments of snapshots that were deleted, as bases of deltas.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/units.h"
#include "programs/volume/control.h"
#include "programs/volume/snapshot_reader.h"
#include "tests/support/figures.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"
#include "tests/volume/volume_model.h"

namespace cbt::volume {
namespace marks_test {

using test::Drain;
using test::SameRanges;
using test::TempDir;
using test::ValueOf;
using test::VolumeModel;
using namespace units;

constexpr size_t kG = 4096;
constexpr MarkLimits kAll = {.count = 1000, .age = std::chrono::hours(24), .bytes = kGiB};

std::unique_ptr<TrackedVolume> Make(const std::string& directory, uint64_t capacity = kMiB) {
  test::RequireOk(TrackedVolume::Create(directory, capacity));
  return ValueOf(TrackedVolume::Open(directory));
}

std::vector<std::string> IdsOf(const std::vector<SnapshotMark>& marks) {
  std::vector<std::string> ids;
  for (const SnapshotMark& mark : marks) ids.push_back(mark.id);
  return ids;
}

void Write(TrackedVolume& volume, uint64_t block, uint8_t value = 1) {
  EXPECT_OK(volume.Write(block * kG, std::vector<uint8_t>(kG, value), Durability::kCached));
}

reference::Ranges DeltaOf(const TrackedVolume& volume, const std::string& base,
                          const std::string& target) {
  return ValueOf(Drain(*ValueOf(volume.Delta(base, target))));
}

// A volume and a model in which a snapshot that became a mark stays. `marks_` are the model's
// entries without data.
class History {
 public:
  History(std::string directory, uint64_t seed)
      : random_(seed),
        directory_(std::move(directory)),
        model_(20 * kG + seed % 3 * 1000, kG),
        volume_(Make(directory_, model_.bytes().size())) {}

  void Step() {
    const uint64_t kind = random_() % 100;
    const std::string id = absl::StrCat("s", random_() % 6);
    const size_t at = Find(id);
    if (kind < 40) {
      Change();
    } else if (kind < 65) {
      Take(id, at);
    } else if (kind < 85) {
      if (at < Size() && !marks_.contains(id)) Delete(id, at);
    } else if (kind < 88) {
      const size_t capacity = model_.bytes().size() + random_() % (4 * kG);
      ASSERT_OK(volume_->Resize(capacity));
      model_.Resize(capacity);
    } else if (kind < 91) {
      if (at == Size() || marks_.contains(id)) return;
      ASSERT_TRUE(volume_->WaitForCopies(60));
      ASSERT_OK(volume_->Revert(id));
      model_.Revert(at);
    } else if (kind < 96) {
      ASSERT_OK(volume_->Close());
      volume_ = ValueOf(TrackedVolume::Open(directory_));
    } else {
      Compare();
    }
  }

  void Compare() {
    ASSERT_TRUE(volume_->WaitForCopies(60));
    const auto reader = ValueOf(SnapshotReader::Open(directory_));
    ASSERT_EQ(reader->marks(), volume_->marks());
    ASSERT_EQ(volume_->status().marks, marks_.size());
    std::vector<std::string> want;
    for (const VolumeModel::Snapshot& entry : model_.snapshots()) {
      if (marks_.contains(entry.id)) want.push_back(entry.id);
    }
    ASSERT_EQ(IdsOf(volume_->marks()), want);
    for (size_t j = 0; j < Size(); ++j) {
      const std::string& target = model_.snapshots()[j].id;
      for (size_t i = 0; i < Size(); ++i) {
        const std::string& base = model_.snapshots()[i].id;
        SCOPED_TRACE(absl::StrCat(base, " to ", target));
        const auto delta = volume_->Delta(base, target);
        if (marks_.contains(target)) {
          ASSERT_TRUE(absl::IsNotFound(delta.status())) << delta.status();
        } else if (i > j) {
          ASSERT_TRUE(absl::IsInvalidArgument(delta.status())) << delta.status();
        } else {
          ASSERT_OK(delta);
          const auto ranges = ValueOf(Drain(**delta));
          ASSERT_TRUE(SameRanges(ranges, model_.Delta(i, j)));
          ASSERT_TRUE(test::Covers(
              ranges,
              VolumeModel::Differing(model_.snapshots()[i].bytes, model_.snapshots()[j].bytes, kG),
              kG));
          ASSERT_EQ(ValueOf(Drain(*ValueOf(reader->Delta(base, target)))), ranges);
        }
      }
    }
  }

 private:
  size_t Size() const { return model_.snapshots().size(); }
  size_t Find(const std::string& id) const {
    size_t at = 0;
    while (at < Size() && model_.snapshots()[at].id != id) ++at;
    return at;
  }

  void Change() {
    const size_t size = model_.bytes().size();
    const size_t offset = random_() % size;
    const size_t length = random_() % std::min<size_t>(size - offset + 1, 4 * kG);
    const auto value = static_cast<uint8_t>(random_());
    ASSERT_OK(volume_->Write(offset, std::vector<uint8_t>(length, value), Durability::kCached));
    model_.Fill(offset, length, value);
  }

  void Take(const std::string& id, size_t at) {
    if (at < Size() && !marks_.contains(id)) return;
    ASSERT_OK(volume_->TakeSnapshot(id));
    model_.Take(id);
    // The id means the new one from here on.
    if (marks_.erase(id) > 0) model_.Delete(at);
  }

  void Delete(const std::string& id, size_t at) {
    if (random_() % 5 == 0) {
      ASSERT_OK(volume_->DeleteSnapshot(id));
      model_.Delete(at);
      return;
    }
    const uint64_t most = random_() % 5;
    MarkLimits limits = kAll;
    limits.count = most;
    ASSERT_OK(volume_->DeleteSnapshot(id, limits));
    if (most == 0) {
      model_.Delete(at);
    } else {
      marks_.insert(id);
    }
    for (size_t i = 0; i < Size() && marks_.size() > most;) {
      if (marks_.erase(model_.snapshots()[i].id) == 0) {
        ++i;
      } else {
        model_.Delete(i);
      }
    }
  }

  test::SeededRandom random_;
  const std::string directory_;
  VolumeModel model_;
  std::set<std::string> marks_;
  std::unique_ptr<TrackedVolume> volume_;
};

// CBT_TEST_SCALE=1000 makes it ten thousand.
TEST(MarksTest, E21DeltasFromMarksAreExactInRandomHistories) {
  const int64_t histories = 10 * test::TestScale();
  for (int64_t seed = 1; seed <= histories; ++seed) {
    SCOPED_TRACE(seed);
    const TempDir directory;
    History history(directory / "v", static_cast<uint64_t>(seed));
    for (int step = 0; step < 60 && !HasFailure(); ++step) history.Step();
    history.Compare();
    if (HasFailure()) return;
  }
  test::PrintFigure("mark_histories", histories);
}

TEST(MarksTest, E21ADeletedSnapshotFreesItsDataAndStaysABase) {
  const TempDir directory;
  auto volume = Make(directory / "v");
  ASSERT_OK_AND_ASSIGN(const SnapshotInfo base, volume->TakeSnapshot("base"));
  Write(*volume, 3);
  ASSERT_OK(volume->TakeSnapshot("target"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  ASSERT_OK(volume->DeleteSnapshot("base", kAll));
  EXPECT_FALSE(std::filesystem::exists(directory / "v/snapshots/base"));
  EXPECT_EQ(volume->snapshots().size(), 1u);
  EXPECT_TRUE(absl::IsNotFound(volume->FindSnapshot("base").status()));
  EXPECT_TRUE(absl::IsNotFound(volume->SnapshotPath("base").status()));
  EXPECT_TRUE(absl::IsNotFound(volume->Allocated("base").status()));
  EXPECT_TRUE(absl::IsNotFound(volume->Revert("base")));
  EXPECT_EQ(DeltaOf(*volume, "base", "target"), (reference::Ranges{{3 * kG, kG}}));
  ASSERT_EQ(volume->marks().size(), 1u);
  EXPECT_EQ(volume->marks().front().id, "base");
  EXPECT_EQ(volume->marks().front().size, 1_MiB);
  EXPECT_EQ(volume->marks().front().created_ns, base.created_ns);
  // A mark is no target, and no base of what was before it.
  EXPECT_TRUE(absl::IsNotFound(volume->Delta("target", "base").status()));
  ASSERT_OK(volume->DeleteSnapshot("target", kAll));
  ASSERT_OK(volume->TakeSnapshot("third"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  EXPECT_TRUE(absl::IsNotFound(volume->Delta("base", "target").status()));
  EXPECT_EQ(DeltaOf(*volume, "base", "third"), (reference::Ranges{{3 * kG, kG}}));
  EXPECT_TRUE(DeltaOf(*volume, "target", "third").empty());
}

TEST(MarksTest, E22TheOldestGoFirst) {
  const TempDir directory;
  auto volume = Make(directory / "v", 64_MiB);
  for (int i = 0; i < 6; ++i) {
    ASSERT_OK(volume->TakeSnapshot(absl::StrCat("s", i)));
    Write(*volume, static_cast<uint64_t>(i));
  }
  ASSERT_OK(volume->TakeSnapshot("last"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  MarkLimits limits = kAll;
  limits.count = 3;
  // In any order of deletion.
  for (const int i : {4, 0, 2, 1, 5}) {
    ASSERT_OK(volume->DeleteSnapshot(absl::StrCat("s", i), limits));
  }
  EXPECT_EQ(IdsOf(volume->marks()), (std::vector<std::string>{"s2", "s4", "s5"}));
  EXPECT_TRUE(absl::IsNotFound(volume->Delta("s1", "last").status()));
  EXPECT_EQ(DeltaOf(*volume, "s4", "last"), (reference::Ranges{{4 * kG, 2 * kG}}));
  // A limit of bytes: each map of a block has the same size.
  uint64_t map = kMiB;
  for (const auto& file : std::filesystem::directory_iterator(directory / "v/chain")) {
    if (file.path().extension() == ".cbm") map = std::min(map, file.file_size());
  }
  limits.bytes = map * 5 / 2;
  ASSERT_OK(volume->DeleteSnapshot("s3", limits));
  EXPECT_EQ(IdsOf(volume->marks()), (std::vector<std::string>{"s4", "s5"}));
  // Of age.
  limits.age = std::chrono::seconds(0);
  ASSERT_OK(volume->DeleteSnapshot("last", limits));
  EXPECT_EQ(volume->marks().size(), 0u);
  // What counts as hidden goes with the next snapshot.
  ASSERT_OK(volume->TakeSnapshot("new"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  ASSERT_OK(volume->Close());
  volume = ValueOf(TrackedVolume::Open(directory / "v"));
  EXPECT_TRUE(absl::IsNotFound(volume->Delta("last", "new").status()));
}

TEST(MarksTest, E21AnIdThatIsUsedAgainMeansTheNewSnapshot) {
  const TempDir directory;
  auto volume = Make(directory / "v");
  ASSERT_OK(volume->TakeSnapshot("a"));
  Write(*volume, 1);
  ASSERT_OK(volume->DeleteSnapshot("a", kAll));
  ASSERT_OK(volume->TakeSnapshot("a"));
  EXPECT_TRUE(volume->marks().empty());
  Write(*volume, 2);
  ASSERT_OK(volume->TakeSnapshot("b"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  EXPECT_EQ(DeltaOf(*volume, "a", "b"), (reference::Ranges{{2 * kG, kG}}));
  ASSERT_OK(volume->DeleteSnapshot("a", kAll));
  EXPECT_EQ(DeltaOf(*volume, "a", "b"), (reference::Ranges{{2 * kG, kG}}));
}

void MakeFile(const std::string& path) { std::ofstream(path).flush(); }

// Whatever a kill leaves between the steps of a deletion, the mark or the snapshot is there.
TEST(MarksTest, E21AKillBetweenTheStepsLosesNeitherMomentNorSnapshot) {
  const TempDir directory;
  const std::string path = directory / "v";
  {
    const auto volume = Make(path);
    for (const char* const id : {"a", "b", "c"}) {
      ASSERT_OK(volume->TakeSnapshot(id));
      Write(*volume, static_cast<uint64_t>(id[0] - 'a'));
    }
    ASSERT_OK(volume->TakeSnapshot("d"));
    ASSERT_TRUE(volume->WaitForCopies(60));
  }
  // a: the mark is written, the snapshot not removed. b: nor is it brought into the chain's order.
  MakeFile(path + "/marks/a");
  MakeFile(path + "/marks/b");
  std::filesystem::remove(path + "/snapshots/b");
  // c: the mark has gone, the chain still has the moment. And what no volume has.
  std::filesystem::remove(path + "/snapshots/c");
  MakeFile(path + "/marks/unknown");
  MakeFile(path + "/marks/.x.partial");
  EXPECT_EQ(IdsOf(ValueOf(SnapshotReader::Open(path))->marks()), (std::vector<std::string>{"b"}));
  const auto volume = ValueOf(TrackedVolume::Open(path));
  EXPECT_EQ(IdsOf(volume->marks()), (std::vector<std::string>{"b"}));
  EXPECT_EQ(volume->snapshots().size(), 2u);
  EXPECT_EQ(DeltaOf(*volume, "a", "d"), (reference::Ranges{{0, 3 * kG}}));
  EXPECT_EQ(DeltaOf(*volume, "b", "d"), (reference::Ranges{{kG, 2 * kG}}));
  EXPECT_TRUE(absl::IsNotFound(volume->Delta("c", "d").status()));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path + "/marks"), {}), 1);
}

TEST(MarksTest, AVolumeOfAnEarlierVersionGetsThem) {
  const TempDir directory;
  {
    const auto volume = Make(directory / "v");
    ASSERT_OK(volume->TakeSnapshot("a"));
    ASSERT_TRUE(volume->WaitForCopies(60));
  }
  std::filesystem::remove(directory / "v/marks");
  EXPECT_TRUE(ValueOf(SnapshotReader::Open(directory / "v"))->marks().empty());
  const auto volume = ValueOf(TrackedVolume::Open(directory / "v"));
  ASSERT_OK(volume->DeleteSnapshot("a", kAll));
  EXPECT_EQ(IdsOf(volume->marks()), (std::vector<std::string>{"a"}));
}

TEST(MarksTest, TheControlSocketMakesAndListsThem) {
  const TempDir directory;
  const auto volume = Make(directory / "v");
  const auto server = ValueOf(ControlServer::Start(*volume, {.path = directory / "s"}));
  const auto client = ValueOf(ControlClient::Connect(directory / "s", 30));
  for (int i = 0; i < 3; ++i) ASSERT_OK(client->TakeSnapshot(absl::StrCat("s", i)));
  ASSERT_TRUE(volume->WaitForCopies(60));
  ASSERT_OK(client->DeleteSnapshot("s0"));
  EXPECT_EQ(ValueOf(client->ListMarks()).size(), 0u);
  ASSERT_OK(client->DeleteSnapshot("s1", kAll));
  EXPECT_EQ(ValueOf(client->ListMarks()), volume->marks());
  EXPECT_EQ(IdsOf(volume->marks()), (std::vector<std::string>{"s1"}));
  EXPECT_EQ(ValueOf(client->Status()).marks, 1u);
  // The longest age that there is.
  ASSERT_OK(client->DeleteSnapshot(
      "s2", MarkLimits{.count = 2, .age = std::chrono::seconds::max(), .bytes = kGiB}));
  EXPECT_EQ(volume->marks().size(), 2u);
}

}  // namespace marks_test
}  // namespace cbt::volume

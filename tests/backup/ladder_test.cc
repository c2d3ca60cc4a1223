// Which snapshot is a parent, and what is read instead where none is.
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "absl/time/clock.h"
#include "repository/tree.h"
#include "tests/backup/fixture.h"

namespace cbt::backup {
namespace ladder_test {

using namespace test_support;  // NOLINT(google-build-using-namespace)
using test::ValueOf;

class Ladder : public testing::Test {
 protected:
  void SetUp() override {
    MakeRepository(directory_.path());
    std::mt19937_64 noise(3);
    first_.resize(6 << 20);
    for (size_t i = 0; i < (4 << 20); ++i) first_[i] = static_cast<uint8_t>(noise());
    second_ = first_;
    second_[(1 << 20) + 5] ^= 1;
    history_.Add("one", first_);
  }

  std::unique_ptr<repository::Repository> Open() { return OpenIn(BucketAt(directory_.path())); }

  absl::StatusOr<CreateResult> Make(const std::string& handle, CreateOptions options = {}) {
    notes_.clear();
    options.on_note = [this](const std::string& text) { notes_ += text + "\n"; };
    return BackUp(*Open(), history_, handle, options);
  }

  void ExpectRestored() {
    const auto repository = Open();
    EXPECT_TRUE(RestoreOf(*repository, "vol", "") == history_.newest());
  }

  const test::TempDir directory_;
  Bytes first_;
  Bytes second_;
  History history_;
  std::string notes_;
};

TEST_F(Ladder, ReadsOnlyWhatChanged) {
  const CreateResult one = ValueOf(Make("one"));
  EXPECT_EQ(one.snapshot.tier, "allocated");
  EXPECT_EQ(one.blobs_read, 4u);
  EXPECT_NE(notes_.find("no delta: "), std::string::npos);
  history_.Add("two", second_);
  const CreateResult two = ValueOf(Make("two", {.require_incremental = true}));
  EXPECT_EQ(two.snapshot.tier, "delta");
  EXPECT_EQ(two.parent, one.snapshot.snapshot.id);
  EXPECT_EQ(two.blobs_read, 1u);
  EXPECT_EQ(two.stored.blobs, 2u);  // and the tree
  EXPECT_EQ(notes_, "");
  ExpectRestored();
  // The tags are what the next one goes on from.
  const auto newest = ValueOf(FindVolumeSnapshot(*Open(), "vol", "two"));
  EXPECT_EQ(newest.capacity, second_.size());
  EXPECT_EQ(newest.blob_bytes, uint64_t{1 << 20});
  EXPECT_EQ(newest.tier, "delta");
}

TEST_F(Ladder, SaysEachStep) {
  ValueOf(Make("one"));
  history_.Add("two", second_);
  for (const absl::Status& error :
       {absl::NotFoundError("base gone"), absl::FailedPreconditionError("no bitmap"),
        absl::UnimplementedError("no deltas"), absl::InvalidArgumentError("not a pair")}) {
    history_.delta = error;
    history_.allocated = absl::OkStatus();
    const absl::Status refused = Make("two", {.require_incremental = true}).status();
    EXPECT_TRUE(IsNotIncremental(refused)) << refused;
    EXPECT_EQ(ValueOf(Make("two")).snapshot.tier, "allocated");
    EXPECT_NE(notes_.find(std::string(error.message())), std::string::npos) << notes_;
    ExpectRestored();
    history_.allocated = absl::UnimplementedError("nor this");
    const CreateResult all = ValueOf(Make("two"));
    EXPECT_EQ(all.snapshot.tier, "all");
    EXPECT_EQ(all.blobs_read, all.blobs);
    EXPECT_FALSE(all.parent.has_value());
    EXPECT_NE(notes_.find("nor this"), std::string::npos) << notes_;
    ExpectRestored();
  }
  // What may be there later ends the backup.
  for (const absl::Status& error :
       {absl::UnavailableError("down"), absl::DataLossError("bad"), absl::AbortedError("moved"),
        absl::PermissionDeniedError("no")}) {
    history_.delta = error;
    EXPECT_EQ(Make("two").status(), error);
  }
}

TEST_F(Ladder, RefusesRangesOfAnotherSnapshot) {
  ValueOf(Make("one"));
  history_.Add("two", second_);
  for (const int64_t off : {4096, -4096}) {
    history_.capacity_error = static_cast<uint64_t>(off);
    EXPECT_TRUE(absl::IsInvalidArgument(Make("two").status())) << off;
    EXPECT_FALSE(IsNotIncremental(Make("two", {.require_incremental = true}).status()));
  }
}

// The handles are the same, and the sizes: only the data shows that they are two volumes.
TEST_F(Ladder, RefusesADeltaOfAnotherVolume) {
  ValueOf(Make("one"));
  std::mt19937_64 noise(4);
  Bytes other(first_.size());
  for (size_t i = 0; i < (4 << 20); ++i) other[i] = static_cast<uint8_t>(noise());
  history_.Add("one", other);
  other[5] ^= 1;
  history_.Add("two", other);
  const absl::Status refused = Make("two").status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_NE(refused.message().find("another volume"), std::string_view::npos) << refused;
  // Also where one of the two is nearly empty.
  Bytes sparse(first_.size());
  history_.Add("one", sparse);
  sparse[5] ^= 1;
  history_.Add("two", sparse);
  EXPECT_TRUE(absl::IsInvalidArgument(Make("two").status()));
  EXPECT_EQ(ValueOf(FindVolumeSnapshots(*Open(), "vol")).size(), 1u);
}

TEST_F(Ladder, AVolumeGrowsAndShrinks) {
  ValueOf(Make("one"));
  Bytes bytes = first_;
  int number = 0;
  for (const size_t size : {6u << 20, (6u << 20) + 1, 9u << 20, 2u << 20, (2u << 20) - 7, 0u, 5u}) {
    bytes.resize(size);
    const std::string handle = "s" + std::to_string(number++);
    history_.Add(handle, bytes);
    EXPECT_EQ(ValueOf(Make(handle)).snapshot.tier, "delta") << size;
    ExpectRestored();
  }
}

TEST_F(Ladder, DamagedParentsAreNoParents) {
  const CreateResult one = ValueOf(Make("one"));
  history_.Add("two", second_);
  // Every pack is gone: nothing of the parent may be taken over.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_ / "data")) {
    if (entry.is_regular_file()) std::filesystem::remove(entry.path());
  }
  const CreateResult two = ValueOf(Make("two"));
  EXPECT_EQ(two.snapshot.tier, "allocated");
  EXPECT_NE(notes_.find("not a parent"), std::string::npos) << notes_;
  ExpectRestored();
  // The older snapshot was healed on the way but for one blob; an older parent is found past one
  // that was forgotten.
  std::filesystem::remove(directory_ / ("snapshots/" + one.snapshot.snapshot.id.Hex()));
  history_.Add("three", first_);
  const CreateResult three = ValueOf(Make("three"));
  EXPECT_EQ(three.snapshot.tier, "delta");
  EXPECT_EQ(three.parent, two.snapshot.snapshot.id);
  ExpectRestored();
}

TEST_F(Ladder, OtherVolumesAreNoParents) {
  ValueOf(Make("one", {.volume = "other"}));
  EXPECT_EQ(ValueOf(Make("one")).snapshot.tier, "allocated");
  // Nothing is stored twice but the tree.
  EXPECT_EQ(ValueOf(Make("one", {.volume = "third"})).stored.blobs, 1u);
}

TEST_F(Ladder, TwoAtOnce) {
  const auto a = Open();
  const auto b = Open();
  History other;
  other.Add("x", second_);
  ValueOf(BackUp(*a, history_, "one"));
  ValueOf(BackUp(*b, other, "x", {.volume = "other"}));
  const auto repository = Open();
  EXPECT_TRUE(RestoreOf(*repository, "vol", "") == first_);
  EXPECT_TRUE(RestoreOf(*repository, "other", "") == second_);
}

TEST_F(Ladder, TwoOfOneVolumeAtOnce) {
  const CreateResult one = ValueOf(Make("one"));
  Bytes third = first_;
  third[(3 << 20) + 1] ^= 1;
  History other;
  other.Add("one", first_);
  other.Add("three", third);
  history_.Add("two", second_);
  const auto a = Open();
  const auto b = Open();
  absl::StatusOr<CreateResult> made = absl::UnknownError("not run");
  std::thread thread([&] { made = BackUp(*a, history_, "two"); });
  const absl::StatusOr<CreateResult> mine = BackUp(*b, other, "three");
  thread.join();
  for (const CreateResult& result : {ValueOf(std::move(made)), ValueOf(mine)}) {
    EXPECT_EQ(result.snapshot.tier, "delta");
    EXPECT_EQ(result.parent, one.snapshot.snapshot.id);
  }
  const auto repository = Open();
  EXPECT_TRUE(RestoreOf(*repository, "vol", "two") == second_);
  EXPECT_TRUE(RestoreOf(*repository, "vol", "three") == third);
  // Either is the next one's base.
  history_.Add("three", third);
  history_.Add("four", Bytes(first_.size(), 9));
  EXPECT_EQ(ValueOf(Make("four")).snapshot.tier, "delta");
  ExpectRestored();
}

TEST_F(Ladder, ParentsWithOtherBlobs) {
  // What another version, or another program with these tags, may have written.
  const auto parent = [&](uint64_t blob, uint64_t said) {
    const auto repository = Open();
    VolumeSnapshot made{.volume = "vol", .ours = true, .handle = "one", .capacity = first_.size()};
    made.blob_bytes = said;
    std::vector<repository::Id> content;
    for (size_t at = 0; at < first_.size(); at += blob) {
      content.push_back(ValueOf(repository->SaveBlob(
          repository::BlobType::kData,
          std::span(first_).subspan(at, std::min<size_t>(blob, first_.size() - at)))));
    }
    const std::string tree = repository::EncodeFileTree(
        {.name = "vol", .size = first_.size(), .content = std::move(content)}, absl::Now());
    made.snapshot = {.time = absl::Now(),
                     .tree = ValueOf(repository->SaveBlob(
                         repository::BlobType::kTree,
                         {reinterpret_cast<const uint8_t*>(tree.data()), tree.size()})),
                     .paths = {"/vol"},
                     .tags = TagsOf(made)};
    EXPECT_OK(repository->Flush());
    ValueOf(repository->SaveSnapshot(made.snapshot));
  };
  constexpr uint64_t kMebi = 1 << 20;
  history_.Add("two", second_);
  for (const auto& [blob, said] : {std::pair{3 * kMebi, 3 * kMebi},
                                   {2 * kMebi, kMebi},
                                   {kMebi, 2 * kMebi},
                                   {16 * kMebi, 16 * kMebi}}) {
    parent(blob, said);
    EXPECT_EQ(ValueOf(Make("two")).snapshot.tier, "allocated") << blob << ' ' << said;
    EXPECT_NE(notes_.find("not a parent"), std::string::npos) << notes_;
    ExpectRestored();
    std::filesystem::remove_all(directory_ / "snapshots");
    std::filesystem::create_directory(directory_ / "snapshots");
  }
  parent(2 * kMebi, 2 * kMebi);
  const CreateResult two = ValueOf(Make("two"));
  EXPECT_EQ(two.snapshot.tier, "delta");
  EXPECT_EQ(two.snapshot.blob_bytes, 2 * kMebi);
  EXPECT_EQ(two.blobs_read, 1u);
  ExpectRestored();
}

TEST_F(Ladder, ClocksThatAreWrong) {
  const CreateResult one = ValueOf(Make("one"));
  // A host ten years ahead, and one that begins at the epoch.
  repository::Snapshot ahead = one.snapshot.snapshot;
  ahead.time = absl::Now() + absl::Hours(24 * 3650);
  const repository::Id future = ValueOf(Open()->SaveSnapshot(ahead));
  repository::Snapshot behind = one.snapshot.snapshot;
  behind.time = absl::UnixEpoch();
  ValueOf(Open()->SaveSnapshot(behind));
  Bytes bytes = second_;
  for (const char* handle : {"two", "three"}) {
    bytes[(3 << 20) + 9] ^= 1;
    history_.Add(handle, bytes);
    const CreateResult made = ValueOf(Make(handle));
    EXPECT_EQ(made.snapshot.tier, "delta");
    EXPECT_EQ(made.parent, future);  // the changes are those since its handle
    const auto repository = Open();
    EXPECT_TRUE(RestoreOf(*repository, "vol", handle) == bytes);
  }
}

TEST_F(Ladder, AnInputThatChangedIsNotPublished) {
  const absl::Status changed = absl::AbortedError("the image was written");
  EXPECT_EQ(Make("one", {.check_input = [&] { return changed; }}).status(), changed);
  EXPECT_TRUE(ValueOf(Open()->Snapshots()).empty());
}

TEST_F(Ladder, RestoresOntoWhatIsThere) {
  ValueOf(Make("one"));
  const auto repository = Open();
  const VolumeContent content =
      ValueOf(LoadContent(*repository, ValueOf(FindVolumeSnapshot(*repository, "vol", ""))));
  MemoryOutput output(second_);
  output.bytes.resize(second_.size() + 100, 7);  // a larger device
  ValueOf(Restore(*repository, content, output, Target::kKept, {}));
  EXPECT_EQ(output.written, uint64_t{1 << 20});
  EXPECT_EQ(output.bytes.back(), 7);
  output.bytes.resize(first_.size());
  EXPECT_TRUE(output.bytes == first_);
  MemoryOutput dirty(Bytes(first_.size(), 0xee));
  ValueOf(Restore(*repository, content, dirty, Target::kUnknown, {}));
  EXPECT_TRUE(dirty.bytes == first_);
}

TEST_F(Ladder, ComparesWithData) {
  ValueOf(Make("one"));
  const auto repository = Open();
  const VolumeContent content =
      ValueOf(LoadContent(*repository, ValueOf(FindVolumeSnapshot(*repository, "vol", ""))));
  const Comparison same = ValueOf(Compare(*repository, content, MemoryInput(first_), 100, {}));
  EXPECT_EQ(same.blobs, 6u);
  EXPECT_FALSE(same.difference.has_value());
  const Comparison other = ValueOf(Compare(*repository, content, MemoryInput(second_), 100, {}));
  EXPECT_EQ(other.difference->offset, uint64_t{1 << 20});
  EXPECT_EQ(ValueOf(Compare(*repository, content, MemoryInput(first_), 30, {})).blobs, 2u);
  EXPECT_TRUE(absl::IsInvalidArgument(
      Compare(*repository, content, MemoryInput(Bytes(5)), 100, {}).status()));
}

TEST(VolumeNames, AreThoseOfFiles) {
  for (const char* good : {"vol1", "ns.pvc-1", "größe"}) EXPECT_OK(CheckVolumeName(good));
  for (const char* bad : {"", ".", "..", "a/b", "a\\b", "a\"b", "a@b", "a\nb", "\xff"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckVolumeName(bad))) << bad;
  }
}

}  // namespace ladder_test
}  // namespace cbt::backup

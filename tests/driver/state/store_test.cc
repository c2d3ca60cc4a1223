#include "programs/driver/state/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/manifest_bytes.h"
#include "cbt/extent.h"
#include "cbt/units.h"
#include "programs/driver/state/clone_attempts.h"
#include "programs/volume/snapshot_reader.h"
#include "programs/volume/tracked_volume.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::driver {
namespace store_test {

using test::TempDir;
using test::ValueOf;
using volume::TrackedVolume;

constexpr uint64_t kCapacity = 64 * kMiB;

// A driver's store of volumes that are copied: the tests are skipped where files are cloned.
class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    if (FilesAreCloned()) GTEST_SKIP() << "files are cloned here, so no snapshot is ever copied";
    Restart();
  }
  bool FilesAreCloned() const {
    const std::string path = directory_ / "probe";
    test::RequireOk(TrackedVolume::Create(path, kMiB));
    const auto probe = ValueOf(TrackedVolume::Open(path));
    test::RequireOk(probe->TakeSnapshot("probe"));
    const bool clones = probe->status().clones;
    test::RequireOk(probe->Close());
    test::RequireOk(TrackedVolume::Remove(path));
    return clones;
  }

  void Restart() {
    store_.reset();
    store_ = ValueOf(Store::Open(options_));
  }
  void Stop() { store_.reset(); }

  std::string MakeVolume(const std::string& name, uint64_t capacity = kCapacity) {
    return ValueOf(store_->CreateVolume({.name = name, .range = {.required = capacity}})).id;
  }
  // All of the volume holds `value` afterwards.
  void Fill(const std::string& volume, uint8_t value) {
    if (store_ != nullptr) test::RequireOk(store_->ReleaseVolume(volume));
    const auto opened = ValueOf(TrackedVolume::Open(Path(volume)));
    const std::vector<uint8_t> bytes(kMiB, value);
    for (uint64_t at = 0; at < opened->capacity(); at += bytes.size()) {
      test::RequireOk(opened->Write(at, bytes, volume::Durability::kCached));
    }
    test::RequireOk(opened->Close());
  }
  // What each byte of the volume holds.
  uint8_t ValueIn(const std::string& volume) {
    test::RequireOk(store_->ReleaseVolume(volume));
    const auto opened = ValueOf(TrackedVolume::Open(Path(volume)));
    std::vector<uint8_t> bytes(opened->capacity());
    test::RequireOk(opened->Read(0, bytes));
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(),
                            [&bytes](uint8_t byte) { return byte == bytes.front(); }));
    return bytes.front();
  }
  // Where the state of a volume's data is.
  std::string Path(const std::string& volume) const {
    return directory_ / ("volumes/" + volume + "/volume");
  }

  // A snapshot that is not ready, and will not be before the volume is opened again.
  Snapshot Begin(const std::string& volume, const std::string& name) {
    constexpr int kTries = 100;  // the copy may be faster than this thread
    for (int i = 0; i < kTries; ++i) {
      const Snapshot snapshot = ValueOf(store_->CreateSnapshot(volume, name));
      test::RequireOk(store_->ReleaseVolume(volume));
      if (std::filesystem::exists(CopiedList(volume, snapshot.id))) return snapshot;
      test::RequireOk(store_->DeleteSnapshot(snapshot.id));
    }
    throw std::runtime_error("each copy was complete at once");
  }
  std::string CopiedList(const std::string& volume, const std::string& snapshot) const {
    return Path(volume) + "/copying/" + snapshot + "~copied";
  }
  // As a loss of power does while a snapshot is copied.
  void Lose(const std::string& volume, const std::string& snapshot) {
    ASSERT_TRUE(std::filesystem::remove(CopiedList(volume, snapshot)));
  }
  // What a driver leaves that is killed before it takes the snapshot.
  std::string Reserve(const std::string& volume, const std::string& name) {
    const auto catalog =
        ValueOf(Catalog::Open(options_.state_directory, [](const auto&, const auto&) {}));
    return ValueOf(catalog->ReserveSnapshot(volume, name));
  }
  void WriteOldRecord(const std::string& volume, const std::string& id, const std::string& name) {
    ManifestWriter writer({.magic = {0x89, 'C', 'B', 'S', '\r', '\n', 0x1a, '\n'},
                           .major = 1,
                           .minor = 0,
                           .owner = "snapshot name"});
    writer.Text(name);
    const std::vector<uint8_t> bytes = std::move(writer).Finish();
    directory_.Write("volumes/" + volume + "/names/" + id, std::string(bytes.begin(), bytes.end()));
  }

  absl::StatusOr<Snapshot> WaitUntilReady(const std::string& volume, const std::string& name) {
    absl::StatusOr<Snapshot> snapshot = store_->CreateSnapshot(volume, name);
    Eventually([&] {
      if (!snapshot.ok() || snapshot->ready()) return true;
      snapshot = store_->CreateSnapshot(volume, name);
      return false;
    });
    return snapshot;
  }
  // A new volume with the contents of a snapshot.
  std::string Restore(const std::string& snapshot) {
    return ValueOf(store_->CreateVolume({.name = absl::StrCat("restored ", ++restored_),
                                         .source = {ContentSource::Kind::kSnapshot, snapshot}}))
        .id;
  }
  static uint64_t AllocatedBytes(const std::string& path) {
    constexpr uint64_t kUnit = 512;
    struct stat file = {};
    EXPECT_EQ(::stat(path.c_str(), &file), 0);
    return static_cast<uint64_t>(file.st_blocks) * kUnit;
  }
  static bool Eventually(const std::function<bool()>& is_so) {
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!is_so()) {
      if (std::chrono::steady_clock::now() > latest) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }

  TempDir directory_;
  std::mutex reports_mutex_;
  std::vector<std::string> reports_;
  StoreOptions options_ = {.state_directory = directory_.path(),
                           .report =
                               [this](const std::string&, const absl::Status& why) {
                                 const std::lock_guard lock(reports_mutex_);
                                 reports_.push_back(why.ToString());
                               },
                           .clone_patience = std::chrono::seconds(10)};
  std::unique_ptr<Store> store_;
  int restored_ = 0;
};

TEST_F(StoreTest, MBAnAcknowledgedSnapshotIsNeverTakenAgain) {
  const std::string volume = MakeVolume("volume");
  Fill(volume, 1);
  const Snapshot taken = Begin(volume, "monday");
  Lose(volume, taken.id);
  Fill(volume, 2);
  for (const bool restarted : {false, true}) {
    if (restarted) Restart();
    for (int i = 0; i < 2; ++i) {
      const absl::Status again = store_->CreateSnapshot(volume, "monday").status();
      EXPECT_TRUE(absl::IsDataLoss(again)) << again;
      EXPECT_THAT(std::string(again.message()),
                  testing::AllOf(testing::HasSubstr(taken.id), testing::HasSubstr("delete it")));
    }
    EXPECT_TRUE(absl::IsDataLoss(store_->GetSnapshot(taken.id).status()));
    EXPECT_TRUE(store_->catalog().ListSnapshots("", 0, "").entries.empty());
    const VolumeRequest restored = {.name = "restored",
                                    .source = {ContentSource::Kind::kSnapshot, taken.id}};
    EXPECT_TRUE(absl::IsDataLoss(store_->CreateVolume(restored).status()));
  }
  EXPECT_THAT(reports_, testing::Contains(testing::HasSubstr("is lost")));
  ASSERT_OK(store_->DeleteSnapshot(taken.id));
  ASSERT_OK_AND_ASSIGN(const Snapshot next, store_->CreateSnapshot(volume, "monday"));
  EXPECT_NE(next.id, taken.id);
  EXPECT_GE(next.record.cut->created_ns, taken.record.cut->created_ns);
}

TEST_F(StoreTest, MBTheMomentOfASnapshotIsOnDiskBeforeTheFirstOk) {
  const std::string volume = MakeVolume("volume");
  Fill(volume, 1);
  const Snapshot taken = Begin(volume, "monday");
  Restart();
  Fill(volume, 2);
  const Snapshot ready = ValueOf(WaitUntilReady(volume, "monday"));
  EXPECT_EQ(ready.id, taken.id);
  EXPECT_EQ(ready.record, taken.record);
  EXPECT_EQ(ValueIn(Restore(ready.id)), 1);
}

TEST_F(StoreTest, MBARemovedVolumeIsNeverSnapshot) {
  const std::string volume = MakeVolume("volume");
  Fill(volume, 1);
  const Snapshot taken = Begin(volume, "monday");
  Lose(volume, taken.id);
  ASSERT_OK(store_->DeleteVolume(volume));
  for (const bool restarted : {false, true}) {
    if (restarted) Restart();
    EXPECT_TRUE(absl::IsDataLoss(store_->CreateSnapshot(volume, "monday").status()));
    EXPECT_TRUE(absl::IsNotFound(store_->CreateSnapshot(volume, "tuesday").status()));
    const VolumeRequest clone = {.name = "clone", .source = {ContentSource::Kind::kVolume, volume}};
    EXPECT_TRUE(absl::IsNotFound(store_->CreateVolume(clone).status()));
  }
  // It kept the volume's directory until here.
  ASSERT_OK(store_->DeleteSnapshot(taken.id));
  EXPECT_TRUE(directory_.Names("volumes").empty());
}

TEST_F(StoreTest, MBADeletedVolumeKeepsWhatASnapshotStillNeeds) {
  for (const bool restarted : {false, true}) {
    const std::string volume = MakeVolume(absl::StrCat("volume", restarted));
    Fill(volume, 1);
    const std::string name = absl::StrCat("monday", restarted);
    Begin(volume, name);
    ASSERT_OK(store_->DeleteVolume(volume));
    if (restarted) Restart();
    const Snapshot ready = ValueOf(WaitUntilReady(volume, name));
    EXPECT_EQ(ValueIn(Restore(ready.id)), 1);
    // Its data goes once nothing needs it.
    EXPECT_TRUE(Eventually([&] { return AllocatedBytes(Path(volume) + "/data") == 0; }));
    EXPECT_EQ(ValueIn(Restore(ready.id)), 1);
  }
}

// The driver is killed between the cut and its record, or can't write the record.
TEST_F(StoreTest, MBACutThatWasNotRecordedIsFoundByTheNextCall) {
  const std::string volume = MakeVolume("volume");
  Fill(volume, 1);
  Stop();
  const std::string id = Reserve(volume, "monday");
  const volume::SnapshotInfo cut =
      ValueOf(ValueOf(TrackedVolume::Open(Path(volume)))->TakeSnapshot(id));
  Restart();
  EXPECT_EQ(ValueOf(store_->GetSnapshot(id)).record.cut->created_ns, cut.created_ns);
  ASSERT_OK_AND_ASSIGN(const Snapshot snapshot, store_->CreateSnapshot(volume, "monday"));
  EXPECT_EQ(snapshot.id, id);
  EXPECT_EQ(snapshot.record.cut->created_ns, cut.created_ns);
}

TEST_F(StoreTest, MBAReservedNameIsNoSnapshot) {
  const std::string volume = MakeVolume("volume");
  const std::string other = MakeVolume("other");
  Stop();
  const std::string id = Reserve(volume, "monday");
  Restart();
  EXPECT_TRUE(absl::IsNotFound(store_->GetSnapshot(id).status()));
  EXPECT_TRUE(store_->catalog().ListSnapshots("", 0, volume).entries.empty());
  // Another volume may have the name.
  ASSERT_OK_AND_ASSIGN(const Snapshot taken, store_->CreateSnapshot(other, "monday"));
  EXPECT_NE(taken.id, id);
  ASSERT_OK(store_->DeleteVolume(volume));
  EXPECT_THAT(directory_.Names("volumes"), testing::ElementsAre(other));
}

TEST_F(StoreTest, MBAVolumeThatCantBeAskedKeepsItsNames) {
  const std::string volume = MakeVolume("volume");
  const std::string other = MakeVolume("other");
  Stop();
  const std::string id = Reserve(volume, "monday");
  Restart();
  {
    const auto elsewhere = ValueOf(TrackedVolume::Open(Path(volume)));
    ASSERT_OK(elsewhere->TakeSnapshot(id));
    // What can't be known now is not "no".
    EXPECT_TRUE(absl::IsUnavailable(store_->CreateSnapshot(other, "monday").status()));
    EXPECT_TRUE(absl::IsUnavailable(store_->DeleteVolume(volume)));
  }
  EXPECT_TRUE(absl::IsAlreadyExists(store_->CreateSnapshot(other, "monday").status()));
  EXPECT_EQ(ValueOf(store_->CreateSnapshot(volume, "monday")).id, id);
}

// Its record has no moment. It may have been acknowledged.
TEST_F(StoreTest, MBASnapshotOfAnOlderVersionIsNotTakenAgain) {
  const std::string volume = MakeVolume("volume");
  const Snapshot there = ValueOf(WaitUntilReady(volume, "there"));
  Stop();
  const std::string gone = Reserve(volume, "gone");
  WriteOldRecord(volume, there.id, "there");
  WriteOldRecord(volume, gone, "gone");
  Restart();
  ASSERT_OK_AND_ASSIGN(const Snapshot same, store_->CreateSnapshot(volume, "there"));
  EXPECT_EQ(same.id, there.id);
  EXPECT_EQ(same.record.cut->size, kCapacity);
  EXPECT_NE(same.record.cut->created_ns, 0);
  EXPECT_TRUE(same.ready());
  EXPECT_TRUE(absl::IsDataLoss(store_->CreateSnapshot(volume, "gone").status()));
}

TEST_F(StoreTest, MBAVolumeWithADamagedSnapshotRecordIsLeftAlone) {
  const std::string volume = MakeVolume("volume");
  const Snapshot one = ValueOf(WaitUntilReady(volume, "one"));
  Stop();
  directory_.Write("volumes/" + volume + "/names/" + one.id, "no record at all");
  Restart();
  EXPECT_THAT(reports_, testing::Contains(testing::HasSubstr(one.id)));
  // Nothing of it is deleted as if there were no snapshot, and no one hears that it is gone.
  EXPECT_TRUE(absl::IsDataLoss(store_->DeleteVolume(volume)));
  EXPECT_TRUE(absl::IsDataLoss(store_->DeleteSnapshot(one.id)));
  EXPECT_TRUE(absl::IsDataLoss(store_->GetSnapshot(one.id).status()));
  EXPECT_TRUE(absl::IsDataLoss(store_->CreateSnapshot(volume, "one").status()));
  EXPECT_TRUE(absl::IsDataLoss(store_->CreateVolume({.name = "volume"}).status()));
  EXPECT_TRUE(std::filesystem::exists(Path(volume) + "/snapshots/" + one.id));
}

TEST_F(StoreTest, MBAVolumeWhoseRecordIsGoneIsLeftAlone) {
  const std::string volume = MakeVolume("volume");
  Fill(volume, 1);
  Stop();
  const std::string directory = directory_ / ("volumes/" + volume);
  std::filesystem::rename(directory + "/RECORD", directory_ / "elsewhere");
  Restart();
  EXPECT_TRUE(std::filesystem::exists(Path(volume) + "/data"));
  EXPECT_THAT(reports_, testing::Contains(testing::HasSubstr("RECORD: is missing")));
  EXPECT_TRUE(absl::IsDataLoss(store_->DeleteVolume(volume)));
  // It comes back as it was.
  Stop();
  std::filesystem::rename(directory_ / "elsewhere", directory + "/RECORD");
  Restart();
  EXPECT_EQ(ValueIn(volume), 1);
}

TEST_F(StoreTest, WhatWasBegunIsRemovedAtTheNextStart) {
  const std::string removed = MakeVolume("removed");
  Stop();
  {
    const auto catalog =
        ValueOf(Catalog::Open(options_.state_directory, [](const auto&, const auto&) {}));
    const std::string begun = ValueOf(catalog->NewVolume());
    ASSERT_OK(TrackedVolume::Create(Path(begun), kMiB));
    ASSERT_OK(catalog->DropVolume(removed));
    std::filesystem::create_directory(directory_ / ("volumes/vol-" + std::string(24, 'a')));
  }
  EXPECT_EQ(directory_.Names("volumes").size(), 3);
  Restart();
  EXPECT_TRUE(directory_.Names("volumes").empty());
}

// A clone and the deletion of its source at the same time: never the zeros of discarded data.
TEST_F(StoreTest, MBACloneIsNeverOfARemovedVolume) {
  for (int i = 0; i < 10; ++i) {
    const std::string volume = MakeVolume(absl::StrCat("volume", i), kMiB);
    Fill(volume, 1);
    ASSERT_OK(WaitUntilReady(volume, absl::StrCat("keeps it", i)));
    std::thread deletes([&] {
      while (!store_->DeleteVolume(volume).ok()) std::this_thread::yield();
    });
    const absl::StatusOr<Volume> clone = store_->CreateVolume(
        {.name = absl::StrCat("clone", i), .source = {ContentSource::Kind::kVolume, volume}});
    deletes.join();
    if (clone.ok()) {
      EXPECT_EQ(ValueIn(clone->id), 1);
    }
  }
}

class CloneTest : public StoreTest {
 protected:
  absl::StatusOr<Volume> Clone(const std::string& source) {
    return store_->CreateVolume(
        {.name = "clone", .source = {ContentSource::Kind::kVolume, source}});
  }
  // One call, which is too short.
  void BeginToClone(const std::string& source) {
    absl::StatusOr<Volume> clone = Clone(source);
    EXPECT_TRUE(Eventually([&] {
      if (!clone.ok()) return true;
      test::RequireOk(store_->DeleteVolume(clone->id));  // the copy was faster than this thread
      clone = Clone(source);
      return false;
    }));
    EXPECT_TRUE(absl::IsUnavailable(clone.status())) << clone.status();
  }
  // Calls until it is made.
  std::string CloneToItsEnd(const std::string& source) {
    absl::StatusOr<Volume> clone = Clone(source);
    EXPECT_TRUE(Eventually([&] {
      if (clone.ok()) return true;
      EXPECT_TRUE(absl::IsUnavailable(clone.status())) << clone.status();
      clone = Clone(source);
      return clone.ok();
    }));
    return ValueOf(clone).id;
  }
  size_t Hidden(const std::string& volume) {
    const auto snapshots = ValueOf(volume::SnapshotReader::Open(Path(volume)))->snapshots();
    return static_cast<size_t>(
        std::count_if(snapshots.begin(), snapshots.end(), [](const volume::SnapshotInfo& info) {
          return info.id.starts_with(CloneAttempts::kPrefix);
        }));
  }
};

TEST_F(CloneTest, MEACloneThatWasGivenUpIsMadeAnew) {
  options_.copy_wait = std::chrono::milliseconds(0);
  options_.clone_patience = std::chrono::milliseconds(200);
  Restart();
  const std::string source = MakeVolume("source");
  Fill(source, 1);
  BeginToClone(source);
  ASSERT_EQ(Hidden(source), 1);
  // No one calls for it: it goes by itself.
  EXPECT_TRUE(Eventually([&] { return Hidden(source) == 0; }));
  Fill(source, 2);
  EXPECT_EQ(ValueIn(CloneToItsEnd(source)), 2);
  EXPECT_TRUE(Eventually([&] { return Hidden(source) == 0; }));
}

TEST_F(CloneTest, METheCallsOfOneAttemptShareACopy) {
  options_.copy_wait = std::chrono::milliseconds(0);
  Restart();
  const std::string source = MakeVolume("source");
  Fill(source, 1);
  BeginToClone(source);
  Fill(source, 2);
  Clone(source).status().IgnoreError();
  EXPECT_LE(Hidden(source), 1);
  EXPECT_EQ(ValueIn(CloneToItsEnd(source)), 1);
  EXPECT_EQ(Hidden(source), 0);
}

TEST_F(CloneTest, MEACopyOfAnEarlierDriverIsNoCloneOfThisOne) {
  options_.copy_wait = std::chrono::milliseconds(0);
  options_.clone_patience = std::chrono::milliseconds(1000);
  Restart();
  const std::string source = MakeVolume("source");
  Fill(source, 1);
  BeginToClone(source);
  Stop();
  {
    // While the driver starts, the volume can't be reached, so the copy stays.
    const auto elsewhere = ValueOf(TrackedVolume::Open(Path(source)));
    ASSERT_TRUE(elsewhere->WaitForCopies(60));
    Restart();
  }
  EXPECT_EQ(Hidden(source), 1);
  Fill(source, 2);
  EXPECT_EQ(ValueIn(CloneToItsEnd(source)), 2);
  EXPECT_TRUE(Eventually([&] { return Hidden(source) == 0; }));
}

TEST_F(CloneTest, MEACopyThatWasLostIsTakenAnew) {
  options_.copy_wait = std::chrono::milliseconds(0);
  Restart();
  const std::string source = MakeVolume("source");
  Fill(source, 1);
  BeginToClone(source);
  ASSERT_OK(store_->ReleaseVolume(source));
  for (const auto& entry : std::filesystem::directory_iterator(Path(source) + "/copying")) {
    if (entry.path().string().ends_with("~copied")) std::filesystem::remove(entry.path());
  }
  Fill(source, 2);
  EXPECT_EQ(ValueIn(CloneToItsEnd(source)), 2);
}

TEST_F(CloneTest, MEACloneThatWasMadeForNobodyIsNotGivenToALaterCall) {
  options_.clone_patience = std::chrono::milliseconds(300);
  Restart();
  const std::string source = MakeVolume("source");
  const VolumeRequest request = {.name = "clone", .source = {ContentSource::Kind::kVolume, source}};
  for (const bool restarted : {false, true}) {
    Fill(source, 1);
    // Its client has gone when the clone is complete.
    const absl::Status made = store_->CreateVolume(request, [] { return true; }).status();
    ASSERT_TRUE(absl::IsCancelled(made)) << made;
    EXPECT_EQ(store_->catalog().ListVolumes("", 0).entries.size(), 1);
    Fill(source, 2);
    if (restarted) {
      Restart();
    } else {
      EXPECT_TRUE(Eventually([&] { return directory_.Names("volumes").size() == 1; }));
    }
    ASSERT_OK_AND_ASSIGN(const Volume clone, store_->CreateVolume(request));
    EXPECT_EQ(ValueIn(clone.id), 2);
    EXPECT_EQ(store_->catalog().ListVolumes("", 0).entries.size(), 2);
    ASSERT_OK(store_->DeleteVolume(clone.id));
  }
}

TEST_F(CloneTest, METheNextCallOfAnAttemptGetsTheCloneThatWasMadeMeanwhile) {
  const std::string source = MakeVolume("source");
  Fill(source, 1);
  const VolumeRequest request = {.name = "clone", .source = {ContentSource::Kind::kVolume, source}};
  ASSERT_TRUE(absl::IsCancelled(store_->CreateVolume(request, [] { return true; }).status()));
  Fill(source, 2);
  ASSERT_OK_AND_ASSIGN(const Volume clone, store_->CreateVolume(request));
  EXPECT_EQ(ValueIn(clone.id), 1);
  // It is a volume like any other from here on.
  Restart();
  EXPECT_EQ(ValueOf(store_->CreateVolume(request)).id, clone.id);
  EXPECT_EQ(store_->catalog().ListVolumes("", 0).entries.size(), 2);
}

TEST_F(CloneTest, MEAVolumeThatIsDeletedTakesItsCopiesAlong) {
  options_.copy_wait = std::chrono::milliseconds(0);
  Restart();
  const std::string source = MakeVolume("source");
  Fill(source, 1);
  ASSERT_OK(WaitUntilReady(source, "keeps it"));
  BeginToClone(source);
  ASSERT_OK(store_->DeleteVolume(source));
  EXPECT_EQ(Hidden(source), 0);
  EXPECT_EQ(AllocatedBytes(Path(source) + "/data"), 0);
  EXPECT_TRUE(absl::IsNotFound(Clone(source).status()));
}

TEST_F(StoreTest, MGAVolumeOfTheNameWithAnotherGranularityIsAnother) {
  const VolumeRequest request = {
      .name = "volume", .range = {.required = kMiB}, .granularity = 64 * kKiB};
  ASSERT_OK_AND_ASSIGN(const Volume made, store_->CreateVolume(request));
  Restart();
  EXPECT_EQ(ValueOf(store_->CreateVolume(request)).id, made.id);
  VolumeRequest other = request;
  other.granularity = 4 * kKiB;
  EXPECT_TRUE(absl::IsAlreadyExists(store_->CreateVolume(other).status()));
}

TEST_F(StoreTest, MGACapacityThatCantBeIsOutOfRange) {
  const std::string volume = MakeVolume("volume");
  // The limit of a file on most file systems is below, that of the tracker is 1 PiB.
  for (const uint64_t capacity :
       {Store::kLargestVolume, Store::kLargestVolume + 1, 3 * kPiB, kMaxCapacity, UINT64_MAX}) {
    const absl::Status made =
        store_->CreateVolume({.name = "large", .range = {.required = capacity}}).status();
    if (capacity > Store::kLargestVolume || !made.ok()) {
      EXPECT_TRUE(absl::IsOutOfRange(made)) << capacity << ": " << made;
    }
    const absl::Status grown = store_->ExpandVolume(volume, {.required = capacity}).status();
    if (capacity > Store::kLargestVolume || !grown.ok()) {
      EXPECT_TRUE(absl::IsOutOfRange(grown)) << capacity << ": " << grown;
    }
  }
}

}  // namespace store_test
}  // namespace cbt::driver

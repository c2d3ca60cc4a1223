#include "programs/volume/tracked_volume.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/units.h"
#include "programs/volume/snapshot_reader.h"
#include "tests/support/child.h"
#include "tests/support/files.h"
#include "tests/support/loop_mount.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"
#include "tests/volume/volume_model.h"

namespace cbt::volume {
namespace tracked_volume_test {

using test::Covers;
using test::Drain;
using test::SameRanges;
using test::TempDir;
using test::ValueOf;
using test::VolumeModel;
using namespace units;

constexpr size_t kG = 4096;

std::vector<uint8_t> BytesOf(const std::string& path) {
  return test::ReadFile<std::vector<uint8_t>>(path);
}

std::vector<uint8_t> BytesOf(const TrackedVolume& volume) {
  std::vector<uint8_t> bytes(volume.capacity());
  EXPECT_OK(volume.Read(0, bytes));
  return bytes;
}

std::unique_ptr<TrackedVolume> MakeAndOpen(const std::string& directory, uint64_t capacity,
                                           const OpenOptions& options = {},
                                           const CreateOptions& create = {}) {
  test::RequireOk(TrackedVolume::Create(directory, capacity, create));
  return ValueOf(TrackedVolume::Open(directory, options));
}

absl::Status Fill(TrackedVolume& volume, uint64_t offset, size_t length, uint8_t value) {
  return volume.Write(offset, std::vector<uint8_t>(length, value), Durability::kCached);
}

// A directory on a file system that clones files, or does not.
class Place {
 public:
  explicit Place(bool clones) : clones_(clones) {
    if (clones) {
      mount_ = std::make_unique<test::LoopMount>(
          test::LoopMount::Options{.mkfs = "mkfs.xfs -q -m reflink=1"});
    }
  }
  std::string why_not() const {
    return mount_ == nullptr || mount_->mounted() ? "" : mount_->why_not();
  }
  std::string operator/(const std::string& name) const {
    return mount_ == nullptr ? directory_ / name : *mount_ / name;
  }
  OpenOptions options() const { return {.always_copy = !clones_}; }

 private:
  const bool clones_;
  TempDir directory_;
  std::unique_ptr<test::LoopMount> mount_;
};

// Does random operations on a volume and on its model, and compares everything.
class History {
 public:
  History(std::string directory, const OpenOptions& options, uint64_t seed)
      : random_(seed),
        directory_(std::move(directory)),
        options_(options),
        model_(150 * kG + seed % 3 * 1000, kG),
        volume_(MakeAndOpen(directory_, model_.bytes().size(), options)) {}

  void Step() {
    const uint64_t kind = random_() % 100;
    if (kind < 60) {
      Change();
    } else if (kind < 78) {
      const std::string id = absl::StrCat("s", random_() % 12);
      if (Find(id) == model_.snapshots().size()) {
        const auto info = volume_->TakeSnapshot(id);
        ASSERT_OK(info);
        EXPECT_EQ(info->size, model_.bytes().size());
        model_.Take(id);
      } else {
        ASSERT_OK(volume_->TakeSnapshot(id));  // nothing happens
      }
    } else if (kind < 90) {
      const std::string id = absl::StrCat("s", random_() % 12);
      ASSERT_OK(volume_->DeleteSnapshot(id));
      if (const size_t at = Find(id); at < model_.snapshots().size()) model_.Delete(at);
    } else if (kind < 94) {
      const size_t capacity = model_.bytes().size() + random_() % (20 * kG);
      ASSERT_OK(volume_->Resize(capacity));
      model_.Resize(capacity);
    } else if (kind < 97) {
      ASSERT_OK(volume_->Close());
      volume_ = ValueOf(TrackedVolume::Open(directory_, options_));
    } else {
      Compare();
    }
  }

  void Compare() {
    ASSERT_TRUE(volume_->WaitForCopies(60));
    ASSERT_EQ(BytesOf(*volume_), model_.bytes());
    const auto infos = volume_->snapshots();
    const auto& want = model_.snapshots();
    ASSERT_EQ(infos.size(), want.size());
    ASSERT_EQ(volume_->status().changed_bytes > 0, !model_.written().empty());
    const auto reader = ValueOf(SnapshotReader::Open(directory_));
    ASSERT_EQ(reader->snapshots(), infos);
    for (size_t i = 0; i < want.size(); ++i) {
      SCOPED_TRACE(want[i].id);
      EXPECT_EQ(infos[i].id, want[i].id);
      EXPECT_TRUE(infos[i].ready);
      EXPECT_EQ(BytesOf(ValueOf(volume_->SnapshotPath(want[i].id))), want[i].bytes);
      const auto allocated = Drain(*ValueOf(reader->Allocated(want[i].id)));
      ASSERT_OK(allocated);
      EXPECT_TRUE(Covers(*allocated, VolumeModel::Differing({}, want[i].bytes, kG), kG));
      for (size_t j = i; j < want.size(); ++j) {
        const auto delta = Drain(*ValueOf(volume_->Delta(want[i].id, want[j].id)));
        ASSERT_OK(delta);
        EXPECT_TRUE(SameRanges(*delta, model_.Delta(i, j))) << want[j].id;
        EXPECT_TRUE(Covers(*delta, VolumeModel::Differing(want[i].bytes, want[j].bytes, kG), kG));
        EXPECT_EQ(*Drain(*ValueOf(reader->Delta(want[i].id, want[j].id))), *delta);
      }
    }
  }

 private:
  size_t Find(const std::string& id) const {
    size_t at = 0;
    while (at < model_.snapshots().size() && model_.snapshots()[at].id != id) ++at;
    return at;
  }

  void Change() {
    const size_t size = model_.bytes().size();
    const size_t offset = random_() % size;
    const size_t length = random_() % std::min<size_t>(size - offset + 1, 20 * kG);
    const auto durability = random_() % 8 == 0 ? Durability::kFlushed : Durability::kCached;
    uint8_t value = 0;
    switch (random_() % 6) {
      case 0:
        ASSERT_OK(volume_->Zero({offset, length}, random_() % 2 == 0, durability));
        break;
      case 1:
        ASSERT_OK(volume_->Trim({offset, length}, durability));
        break;
      default:
        value = static_cast<uint8_t>(random_());
        ASSERT_OK(volume_->Write(offset, std::vector<uint8_t>(length, value), durability));
    }
    model_.Fill(offset, length, value);
    if (random_() % 8 == 0) {
      ASSERT_OK(volume_->Flush());
    }
  }

  test::SeededRandom random_;
  const std::string directory_;
  const OpenOptions options_;
  VolumeModel model_;
  std::unique_ptr<TrackedVolume> volume_;
};

class TrackedVolumeTest : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Snapshots, TrackedVolumeTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "cloned" : "copied"; });

TEST_P(TrackedVolumeTest, RandomHistoriesAreReportedExactly) {
  const Place place(GetParam());
  if (!place.why_not().empty()) GTEST_SKIP() << place.why_not();
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    History history(place / absl::StrCat("v", seed), place.options(), seed);
    for (int step = 0; step < 120 && !HasFailure(); ++step) history.Step();
    history.Compare();
    if (HasFailure()) return;
  }
}

// Writers don't wait for the copy, and the copy does not see them.
TEST_P(TrackedVolumeTest, SnapshotHasThePointInTimeAtWhichItWasTaken) {
  const Place place(GetParam());
  if (!place.why_not().empty()) GTEST_SKIP() << place.why_not();
  const auto volume = MakeAndOpen(place / "v", 16_MiB, place.options());
  std::vector<uint8_t> bytes(16_MiB);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i / kG * 7 + i);
  ASSERT_OK(volume->Write(0, bytes, Durability::kCached));
  ASSERT_OK(volume->TakeSnapshot("first"));
  std::vector<std::thread> writers;
  for (unsigned t = 0; t < 3; ++t) {
    writers.emplace_back([&, t] {
      test::SeededRandom random(t + 1);
      for (int i = 0; i < 400; ++i) {
        EXPECT_OK(Fill(*volume, random() % (16_MiB / kG - 2) * kG + 100, kG, 255));
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  ASSERT_OK(volume->TakeSnapshot("second"));
  const std::vector<uint8_t> second = BytesOf(*volume);
  ASSERT_OK(volume->Trim({0, 16_MiB}, Durability::kCached));
  ASSERT_TRUE(volume->WaitForCopies(60));
  EXPECT_EQ(BytesOf(ValueOf(volume->SnapshotPath("first"))), bytes);
  EXPECT_EQ(BytesOf(ValueOf(volume->SnapshotPath("second"))), second);
  const auto delta = ValueOf(Drain(*ValueOf(volume->Delta("first", "second"))));
  EXPECT_TRUE(Covers(delta, VolumeModel::Differing(bytes, second, kG), kG));
  EXPECT_EQ(volume->status().clones, GetParam());
}

// Snapshots by several threads at once, under writes, some deleted at once.
TEST_P(TrackedVolumeTest, ConcurrentSnapshotsLoseNothing) {
  const Place place(GetParam());
  if (!place.why_not().empty()) GTEST_SKIP() << place.why_not();
  const auto volume = MakeAndOpen(place / "v", 4_MiB, place.options());
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      test::SeededRandom random(t + 10);
      while (!stop) {
        EXPECT_OK(Fill(*volume, random() % (volume->capacity() / kG) * kG, kG,
                       static_cast<uint8_t>(random())));
      }
    });
  }
  std::vector<std::thread> takers;
  for (unsigned t = 0; t < 2; ++t) {
    takers.emplace_back([&, t] {
      for (int i = 0; i < 8; ++i) {
        EXPECT_OK(volume->TakeSnapshot(absl::StrCat("both-", i)));
        EXPECT_OK(volume->TakeSnapshot(absl::StrCat("own-", t, "-", i)));
        if (i % 3 == 1) {
          EXPECT_OK(volume->DeleteSnapshot(absl::StrCat("own-", t, "-", i)));
        }
        if (t == 0 && i % 4 == 2) {
          EXPECT_OK(volume->Resize(volume->capacity() + 64_KiB));
        }
      }
    });
  }
  for (std::thread& taker : takers) taker.join();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(volume->WaitForCopies(60));
  const auto infos = volume->snapshots();
  EXPECT_EQ(infos.size(), 8u + 2 * 8 - 2 * 3);
  for (size_t i = 0; i + 1 < infos.size(); ++i) {
    const auto base = BytesOf(ValueOf(volume->SnapshotPath(infos[i].id)));
    const auto target = BytesOf(ValueOf(volume->SnapshotPath(infos[i + 1].id)));
    const auto delta = ValueOf(Drain(*ValueOf(volume->Delta(infos[i].id, infos[i + 1].id))));
    EXPECT_TRUE(Covers(delta, VolumeModel::Differing(base, target, kG), kG)) << infos[i + 1].id;
  }
}

// The newest can't leave the chain, because the tracker counts from it; its id is free at once.
TEST_P(TrackedVolumeTest, DeletedIdsCanBeUsedAgain) {
  const Place place(GetParam());
  if (!place.why_not().empty()) GTEST_SKIP() << place.why_not();
  auto volume = MakeAndOpen(place / "v", 1_MiB, place.options());
  for (int round = 0; round < 5; ++round) {
    ASSERT_OK(Fill(*volume, static_cast<uint64_t>(round) * kG, 10, 1));
    ASSERT_OK(volume->TakeSnapshot("a"));
    ASSERT_TRUE(volume->WaitForCopies(60));
    EXPECT_EQ(BytesOf(ValueOf(volume->SnapshotPath("a"))), BytesOf(*volume));
    if (round == 2) {
      ASSERT_OK(volume->Close());
      volume = ValueOf(TrackedVolume::Open(place / "v", place.options()));
    }
    ASSERT_OK(volume->DeleteSnapshot("a"));
    EXPECT_TRUE(absl::IsNotFound(volume->SnapshotPath("a").status()));
    EXPECT_TRUE(volume->snapshots().empty());
    EXPECT_TRUE(ValueOf(SnapshotReader::Open(place / "v"))->snapshots().empty());
  }
  ASSERT_OK(volume->TakeSnapshot("b"));
  ASSERT_OK(Fill(*volume, 9 * kG, 10, 1));
  ASSERT_OK(volume->TakeSnapshot("a"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  EXPECT_EQ(ValueOf(Drain(*ValueOf(volume->Delta("b", "a")))), (reference::Ranges{{9 * kG, kG}}));
  EXPECT_TRUE(absl::IsInvalidArgument(volume->Delta("a", "b").status()));
}

TEST_P(TrackedVolumeTest, VolumeStartsWithTheContentsOfASnapshot) {
  const Place place(GetParam());
  if (!place.why_not().empty()) GTEST_SKIP() << place.why_not();
  const auto volume = MakeAndOpen(place / "v", 3_MiB, place.options());
  ASSERT_OK(Fill(*volume, 1_MiB, 5000, 9));
  ASSERT_OK(volume->TakeSnapshot("a"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  const std::string image = ValueOf(volume->SnapshotPath("a"));
  const auto clone = MakeAndOpen(place / "clone", 4_MiB, place.options(), {.image = image});
  std::vector<uint8_t> want = BytesOf(*volume);
  want.resize(4_MiB);
  EXPECT_EQ(BytesOf(*clone), want);
  EXPECT_EQ(clone->status().changed_bytes, 0u);
  ASSERT_OK(Fill(*clone, 0, 1, 1));
  EXPECT_NE(BytesOf(*clone), want);
  EXPECT_EQ(BytesOf(image), BytesOf(*volume));
  EXPECT_TRUE(absl::IsOutOfRange(TrackedVolume::Create(place / "small", 1_MiB, {.image = image})));
  EXPECT_TRUE(
      absl::IsNotFound(TrackedVolume::Create(place / "none", 1_MiB, {.image = place / "missing"})));
  EXPECT_TRUE(absl::IsNotFound(TrackedVolume::Open(place / "none").status()));
}

TEST(TrackedVolumeTest, ArgumentsAreChecked) {
  const TempDir directory;
  const auto volume = MakeAndOpen(directory / "v", 1_MiB);
  for (const char* const id :
       {"", ".", "..", "../a", "a/b", ".a", "-a", "a b", "a~", "a#1", "\xff"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(volume->TakeSnapshot(id).status())) << id;
    EXPECT_TRUE(absl::IsInvalidArgument(volume->DeleteSnapshot(id))) << id;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(
      volume->TakeSnapshot(std::string(kMaxSnapshotIdBytes + 1, 'a')).status()));
  EXPECT_OK(volume->TakeSnapshot(std::string(kMaxSnapshotIdBytes, 'a')));
  std::vector<uint8_t> bytes(10);
  EXPECT_TRUE(absl::IsOutOfRange(volume->Write(1_MiB - 9, bytes, Durability::kCached)));
  EXPECT_TRUE(absl::IsOutOfRange(volume->Read(UINT64_MAX, bytes)));
  EXPECT_TRUE(absl::IsOutOfRange(volume->Trim({1, 1_MiB}, Durability::kCached)));
  EXPECT_TRUE(absl::IsOutOfRange(volume->Zero({1_MiB + 1, 0}, true, Durability::kCached)));
  EXPECT_TRUE(absl::IsOutOfRange(volume->Extents({0, 1_MiB + 1}, 1).status()));
  EXPECT_TRUE(absl::IsOutOfRange(volume->Resize(1_MiB - 1)));
  EXPECT_TRUE(absl::IsOutOfRange(volume->Resize(kMaxCapacity + 1)));
  EXPECT_TRUE(absl::IsNotFound(volume->Delta("x", "y").status()));
  EXPECT_EQ(volume->status().changed_bytes, 0u);

  EXPECT_TRUE(absl::IsAlreadyExists(TrackedVolume::Create(directory / "v", 1_MiB)) ||
              absl::IsUnavailable(TrackedVolume::Create(directory / "v", 1_MiB)));
  EXPECT_TRUE(absl::IsUnavailable(TrackedVolume::Open(directory / "v").status()));
  EXPECT_TRUE(absl::IsUnavailable(TrackedVolume::Remove(directory / "v")));
  EXPECT_TRUE(absl::IsInvalidArgument(TrackedVolume::Create(directory / "w", 0)));
  EXPECT_TRUE(
      absl::IsInvalidArgument(TrackedVolume::Create(directory / "w", 1, {.granularity = 100})));
  ASSERT_OK(volume->Close());
  EXPECT_TRUE(absl::IsFailedPrecondition(volume->Read(0, bytes)));
  EXPECT_TRUE(absl::IsFailedPrecondition(volume->Write(0, bytes, Durability::kCached)));
  EXPECT_TRUE(absl::IsFailedPrecondition(volume->TakeSnapshot("late").status()));
  EXPECT_TRUE(absl::IsAlreadyExists(TrackedVolume::Create(directory / "v", 1_MiB)));

  directory.Write("v/photo.jpg", "mine");
  EXPECT_TRUE(absl::IsFailedPrecondition(TrackedVolume::Remove(directory / "v")));
  EXPECT_OK(TrackedVolume::Open(directory / "v"));
  std::filesystem::remove(directory / "v/photo.jpg");
  EXPECT_OK(TrackedVolume::Remove(directory / "v"));
  EXPECT_FALSE(std::filesystem::exists(directory / "v"));
  EXPECT_TRUE(absl::IsNotFound(TrackedVolume::Remove(directory / "v")));
}

// What an interrupted Create() leaves is no volume, and is replaced.
TEST(TrackedVolumeTest, HalfAVolumeIsNone) {
  const TempDir directory;
  test::RequireOk(TrackedVolume::Create(directory / "v", 1_MiB));
  EXPECT_FALSE(std::filesystem::exists(directory / "v/UNFINISHED"));
  std::filesystem::remove(directory / "v/MANIFEST");
  directory.Write("v/UNFINISHED", "");
  EXPECT_TRUE(absl::IsNotFound(TrackedVolume::Open(directory / "v").status()));
  EXPECT_TRUE(absl::IsNotFound(SnapshotReader::Open(directory / "v").status()));
  EXPECT_OK(TrackedVolume::Create(directory / "v", 2_MiB));
  EXPECT_EQ(ValueOf(TrackedVolume::Open(directory / "v"))->capacity(), 2_MiB);
  for (const char* const part : {"data", "chain", "tracker-1", "snapshots", "copying"}) {
    std::filesystem::rename(absl::StrCat(directory / "v", "/", part), directory / "aside");
    EXPECT_TRUE(absl::IsDataLoss(TrackedVolume::Open(directory / "v").status())) << part;
    std::filesystem::rename(directory / "aside", absl::StrCat(directory / "v", "/", part));
  }
  std::filesystem::resize_file(directory / "v/data", 1_MiB);
  EXPECT_TRUE(absl::IsDataLoss(TrackedVolume::Open(directory / "v").status()));
  std::filesystem::resize_file(directory / "v/data",
                               3_MiB);  // as an interrupted Resize() leaves it
  EXPECT_OK(TrackedVolume::Open(directory / "v"));
  EXPECT_EQ(std::filesystem::file_size(directory / "v/data"), 2_MiB);
  std::string manifest = test::ReadFile(directory / "v/MANIFEST");
  manifest[20] ^= 1;
  directory.Write("v/MANIFEST", manifest);
  EXPECT_TRUE(absl::IsDataLoss(TrackedVolume::Open(directory / "v").status()));
}

TEST(TrackedVolumeTest, ExtentsTellDataFromHoles) {
  const TempDir directory;
  const auto volume = MakeAndOpen(directory / "v", 8_MiB);
  ASSERT_OK(Fill(*volume, 1_MiB, 1_MiB, 3));
  ASSERT_OK_AND_ASSIGN(const auto parts, volume->Extents({0, 8_MiB}, 100));
  uint64_t at = 0;
  bool all = true;
  for (const VolumeExtent& part : parts) {
    ASSERT_EQ(part.extent.offset, at);
    ASSERT_GT(part.extent.length, 0u);
    all &= !part.hole;
    // What was written is no hole.
    if (part.hole) {
      EXPECT_TRUE(part.extent.end() <= 1_MiB || part.extent.offset >= 2_MiB);
    }
    at = part.extent.end();
  }
  EXPECT_EQ(at, 8_MiB);
  EXPECT_EQ(ValueOf(volume->Extents({0, 8_MiB}, 1)).size(), 1u);
  EXPECT_EQ(all, parts.size() == 1);
}

TEST(TrackedVolumeTest, ForkedChildCanDoNothing) {
  const TempDir directory;
  const auto volume = MakeAndOpen(directory / "v", 1_MiB);
  test::RunInChild([&] {
    std::vector<uint8_t> bytes(10);
    EXPECT_TRUE(absl::IsFailedPrecondition(volume->Write(0, bytes, Durability::kCached)));
    EXPECT_TRUE(absl::IsFailedPrecondition(volume->Read(0, bytes)));
    EXPECT_TRUE(absl::IsFailedPrecondition(volume->TakeSnapshot("a").status()));
    EXPECT_TRUE(absl::IsFailedPrecondition(volume->Resize(2_MiB)));
    EXPECT_TRUE(absl::IsFailedPrecondition(volume->Close()));
  });
  EXPECT_OK(Fill(*volume, 0, 10, 1));
}

// A process that is killed while a snapshot is copied: the copy goes on with the old contents.
TEST(TrackedVolumeTest, CopyContinuesAfterAKill) {
  const TempDir directory;
  std::vector<uint8_t> bytes(32_MiB);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i / 1000);
  test::RunInChild([&] {
    auto volume = MakeAndOpen(directory / "v", 32_MiB, {.always_copy = true});
    EXPECT_OK(volume->Write(0, bytes, Durability::kCached));
    EXPECT_OK(volume->TakeSnapshot("a"));
    for (uint64_t at = 0; at < 32_MiB; at += 2_MiB) EXPECT_OK(Fill(*volume, at, 512, 200));
    static_cast<void>(volume.release());  // as if killed
  });
  const auto reader = ValueOf(SnapshotReader::Open(directory / "v"));
  ASSERT_EQ(reader->snapshots().size(), 1u);
  if (!reader->snapshots()[0].ready) {
    EXPECT_TRUE(absl::IsUnavailable(reader->PathOf("a").status()));
  }
  auto volume = ValueOf(TrackedVolume::Open(directory / "v"));
  EXPECT_EQ(ValueOf(volume->FindSnapshot("a")).created_ns, reader->snapshots()[0].created_ns);
  ASSERT_OK(Fill(*volume, 1_MiB, 512, 201));
  ASSERT_TRUE(volume->WaitForCopies(60));
  EXPECT_EQ(BytesOf(ValueOf(volume->SnapshotPath("a"))), bytes);
  ASSERT_OK(volume->TakeSnapshot("b"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  EXPECT_TRUE(Covers(ValueOf(Drain(*ValueOf(volume->Delta("a", "b")))),
                     VolumeModel::Differing(bytes, BytesOf(*volume), kG), kG));
}

// A list of regions that proves nothing: the snapshot is dropped, and its epoch is not.
TEST(TrackedVolumeTest, CopyWithADamagedListIsDropped) {
  const TempDir directory;
  test::RunInChild([&] {
    auto volume = MakeAndOpen(directory / "v", 8_MiB, {.always_copy = true});
    EXPECT_OK(Fill(*volume, 0, 1_MiB, 1));
    EXPECT_OK(volume->TakeSnapshot("base"));
    EXPECT_TRUE(volume->WaitForCopies(60));
    EXPECT_OK(Fill(*volume, 1_MiB, 6_MiB, 2));
    EXPECT_OK(volume->TakeSnapshot("lost"));
    EXPECT_OK(Fill(*volume, 0, kG, 3));
    static_cast<void>(volume.release());
  });
  // As if the kill had come before the last step.
  if (std::filesystem::exists(directory / "v/snapshots/lost")) {
    std::filesystem::rename(directory / "v/snapshots/lost", directory / "v/copying/lost");
  }
  if (std::fstream file(directory / "v/copying/lost~copied",
                        std::ios::in | std::ios::out | std::ios::binary);
      file) {
    file.seekp(30);
    file.write("not-the-list", 12);
  }
  const auto volume = ValueOf(TrackedVolume::Open(directory / "v", {.always_copy = true}));
  EXPECT_TRUE(absl::IsNotFound(volume->FindSnapshot("lost").status()));
  EXPECT_TRUE(std::filesystem::is_empty(directory / "v/copying"));
  ASSERT_OK(volume->TakeSnapshot("lost"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  EXPECT_TRUE(Covers(
      ValueOf(Drain(*ValueOf(volume->Delta("base", "lost")))),
      VolumeModel::Differing(BytesOf(ValueOf(volume->SnapshotPath("base"))), BytesOf(*volume), kG),
      kG));
}

// Files may not grow past a limit: the write fails, the mark stays, the next write succeeds.
TEST(TrackedVolumeTest, FailedWriteHarmsNothing) {
  const TempDir directory;
  test::RunInChild([&] {
    signal(SIGXFSZ, SIG_IGN);
    const auto volume = MakeAndOpen(directory / "v", 8_MiB);
    const rlimit limit = {.rlim_cur = 1_MiB, .rlim_max = 1_MiB};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    EXPECT_TRUE(absl::IsResourceExhausted(Fill(*volume, 4_MiB, kG, 1)));
    EXPECT_EQ(volume->status().changed_bytes, kG);
    EXPECT_TRUE(absl::IsResourceExhausted(volume->TakeSnapshot("a").status()));
    EXPECT_TRUE(volume->snapshots().empty());
    EXPECT_TRUE(absl::IsResourceExhausted(volume->Resize(16_MiB)));
    EXPECT_EQ(volume->capacity(), 8_MiB);
    EXPECT_OK(Fill(*volume, 0, kG, 1));
    EXPECT_OK(volume->Flush());
    EXPECT_EQ(volume->status().changed_bytes, 2 * kG);
  });
  const auto volume = ValueOf(TrackedVolume::Open(directory / "v"));
  EXPECT_EQ(volume->capacity(), 8_MiB);
  EXPECT_OK(volume->TakeSnapshot("a"));
}

// The disk becomes full while a snapshot is copied: it is dropped, and the volume goes on.
TEST(TrackedVolumeTest, FullDiskDropsTheCopyAndNotTheVolume) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const test::LoopMount disk({.mkfs = "mke2fs -q -t ext4 -O ^has_journal", .mib = 32});
  if (!disk.mounted()) GTEST_SKIP() << disk.why_not();
  const auto volume = MakeAndOpen(disk / "v", 24_MiB, {.always_copy = true});
  ASSERT_OK(Fill(*volume, 0, 12_MiB, 1));
  ASSERT_OK(volume->Flush());
  ASSERT_OK(volume->TakeSnapshot("fits"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  ASSERT_OK(volume->FindSnapshot("fits"));
  const std::vector<uint8_t> before = BytesOf(*volume);
  ASSERT_OK(Fill(*volume, 1_MiB, kG, 2));
  const auto taken = volume->TakeSnapshot("does-not");
  if (taken.ok()) {
    for (uint64_t at = 0; at < 12_MiB; at += 1_MiB) ASSERT_OK(Fill(*volume, at, kG, 3));
    ASSERT_TRUE(volume->WaitForCopies(60));
    EXPECT_TRUE(absl::IsNotFound(volume->FindSnapshot("does-not").status()));
    EXPECT_NE(volume->status().last_error, "");
  } else {
    EXPECT_TRUE(absl::IsResourceExhausted(taken.status())) << taken.status();
    for (uint64_t at = 0; at < 12_MiB; at += 1_MiB) ASSERT_OK(Fill(*volume, at, kG, 3));
  }
  EXPECT_EQ(BytesOf(ValueOf(volume->SnapshotPath("fits"))), before);
  // Deleting makes room, and the call can be repeated.
  ASSERT_OK(volume->TakeSnapshot("short-lived"));
  ASSERT_OK(volume->DeleteSnapshot("short-lived"));
  ASSERT_OK(volume->DeleteSnapshot("fits"));
  ASSERT_OK(volume->TakeSnapshot("does-not"));
  ASSERT_TRUE(volume->WaitForCopies(60));
  EXPECT_EQ(BytesOf(ValueOf(volume->SnapshotPath("does-not"))), BytesOf(*volume));
}

TEST(TrackedVolumeTest, ManySnapshots) {
  const TempDir directory;
  auto volume = MakeAndOpen(directory / "v", 1_MiB);
  constexpr int kMany = 200;
  for (int i = 0; i < kMany; ++i) {
    ASSERT_OK(Fill(*volume, static_cast<uint64_t>(i) * kG, kG, 1));
    ASSERT_OK(volume->TakeSnapshot(absl::StrCat(i)));
  }
  ASSERT_TRUE(volume->WaitForCopies(60));
  for (int i = 0; i < kMany; i += 2) ASSERT_OK(volume->DeleteSnapshot(absl::StrCat(i)));
  ASSERT_OK(volume->Close());
  volume = ValueOf(TrackedVolume::Open(directory / "v"));
  ASSERT_EQ(volume->snapshots().size(), kMany / 2u);
  EXPECT_EQ(ValueOf(Drain(*ValueOf(volume->Delta("1", absl::StrCat(kMany - 1))))),
            (reference::Ranges{{2 * kG, (kMany - 2) * kG}}));
}

}  // namespace tracked_volume_test
}  // namespace cbt::volume

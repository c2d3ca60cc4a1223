// A repository as a whole: blobs, indexes, snapshots, locks, and everything that can be wrong.
#include "repository/repository.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "repository/host.h"
#include "repository/key_file.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::repository {
namespace repository_test {

using test::ValueOf;

constexpr char kPassword[] = "correct horse battery staple";
constexpr LockOptions kQuick{.pause = std::chrono::milliseconds(1)};

std::unique_ptr<bucket::Bucket> BucketAt(const std::string& path) {
  return ValueOf(bucket::OpenDirectoryBucket(path));
}

absl::StatusOr<std::unique_ptr<Repository>> TryOpen(const std::string& path,
                                                    const char* password = kPassword) {
  absl::StatusOr<std::unique_ptr<Repository>> repository =
      Repository::Open(BucketAt(path), "", Secret(password), true, {.lock = kQuick});
  if (!repository.ok()) return repository;
  const absl::StatusOr<IndexSummary> summary = (*repository)->LoadIndex(true);
  if (!summary.ok()) return summary.status();
  return repository;
}

std::vector<uint8_t> RandomBytes(std::mt19937_64& random, size_t size) {
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

std::vector<std::filesystem::path> FilesIn(const std::string& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  return files;
}

class OfVersion : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Formats, OfVersion, testing::Values(1, 2));

TEST_P(OfVersion, KeepsBlobsAndSnapshots) {
  const test::TempDir directory;
  ASSERT_OK(Repository::Create(BucketAt(directory.path()), "", Secret(kPassword), GetParam()));
  EXPECT_TRUE(absl::IsAlreadyExists(
      Repository::Create(BucketAt(directory.path()), "", Secret(kPassword), GetParam())));
  std::mt19937_64 random(5);
  std::vector<std::vector<uint8_t>> blobs;
  for (const size_t size : {0u, 1u, 1000u, 1u << 20}) blobs.push_back(RandomBytes(random, size));
  blobs.emplace_back(3 << 20);  // zeros
  std::vector<Id> ids;
  Id snapshot_id;
  {
    const auto repository = ValueOf(TryOpen(directory.path()));
    EXPECT_EQ(repository->config().version, GetParam());
    for (const auto& blob : blobs) {
      ids.push_back(ValueOf(repository->SaveBlob(BlobType::kData, blob)));
    }
    ASSERT_OK(repository->SaveBlobAs(BlobType::kData, ids[2], blobs[2]));  // once more
    EXPECT_EQ(repository->stored().blobs, blobs.size());
    ASSERT_OK(repository->Flush());
    snapshot_id = ValueOf(repository->SaveSnapshot({.tree = ids[0], .tags = {"cbt"}}));
  }
  EXPECT_TRUE(FilesIn(directory / "locks").empty());
  const auto repository = ValueOf(TryOpen(directory.path()));
  for (size_t i = 0; i < blobs.size(); ++i) {
    EXPECT_EQ(ValueOf(repository->LoadBlob(BlobType::kData, ids[i])), blobs[i]);
    EXPECT_EQ(repository->Find(BlobType::kData, ids[i])->size(), blobs[i].size());
  }
  EXPECT_TRUE(absl::IsNotFound(repository->LoadBlob(BlobType::kTree, ids[0]).status()));
  const std::vector<Snapshot> snapshots = ValueOf(repository->Snapshots());
  ASSERT_EQ(snapshots.size(), 1u);
  EXPECT_EQ(snapshots[0].id, snapshot_id);
  EXPECT_EQ(FilesIn(directory / "data").size(), 1u);
}

TEST(Repository, WantsItsPassword) {
  const test::TempDir directory;
  EXPECT_TRUE(absl::IsNotFound(TryOpen(directory.path()).status()));
  ASSERT_OK(Repository::Create(BucketAt(directory.path()), "", Secret(kPassword)));
  const absl::Status wrong = TryOpen(directory.path(), "hunter2").status();
  EXPECT_TRUE(absl::IsUnauthenticated(wrong));
  EXPECT_EQ(wrong.message().find("hunter2"), std::string::npos);
}

TEST(Repository, IndexesSurviveTheProcess) {
  const test::TempDir directory;
  ASSERT_OK(Repository::Create(BucketAt(directory.path()), "", Secret(kPassword)));
  std::mt19937_64 random(6);
  std::vector<Id> ids;
  {
    // Never flushed, as if killed.
    const auto repository = ValueOf(TryOpen(directory.path()));
    for (int i = 0; i < 100; ++i) {
      ids.push_back(ValueOf(repository->SaveBlob(BlobType::kData, RandomBytes(random, 1 << 20))));
    }
  }
  const auto repository = ValueOf(TryOpen(directory.path()));
  size_t found = 0;
  for (const Id& id : ids) found += repository->Find(BlobType::kData, id).has_value() ? 1u : 0u;
  EXPECT_GE(found, 64u);  // four packs of 16 blobs
  EXPECT_LT(found, 100u);
}

TEST(Repository, DoesNotRelyOnPacksThatAreGone) {
  const test::TempDir directory;
  ASSERT_OK(Repository::Create(BucketAt(directory.path()), "", Secret(kPassword)));
  std::mt19937_64 random(7);
  const std::vector<uint8_t> blob = RandomBytes(random, 5000);
  Id id;
  {
    const auto repository = ValueOf(TryOpen(directory.path()));
    id = ValueOf(repository->SaveBlob(BlobType::kData, blob));
    ASSERT_OK(repository->Flush());
  }
  const std::filesystem::path pack = FilesIn(directory / "data").at(0);
  std::filesystem::resize_file(pack, 100);
  EXPECT_FALSE(ValueOf(TryOpen(directory.path()))->Find(BlobType::kData, id).has_value());
  std::filesystem::remove(pack);
  const auto repository = ValueOf(TryOpen(directory.path()));
  EXPECT_FALSE(repository->Find(BlobType::kData, id).has_value());
  ASSERT_OK(repository->SaveBlobAs(BlobType::kData, id, blob));
  ASSERT_OK(repository->Flush());
  EXPECT_EQ(ValueOf(repository->LoadBlob(BlobType::kData, id)), blob);
}

TEST(Repository, FindsEveryDamagedByte) {
  const test::TempDir directory;
  ASSERT_OK(Repository::Create(BucketAt(directory.path()), "", Secret(kPassword)));
  std::mt19937_64 random(8);
  Id id;
  {
    const auto repository = ValueOf(TryOpen(directory.path()));
    id = ValueOf(repository->SaveBlob(BlobType::kData, RandomBytes(random, 300)));
    ASSERT_OK(repository->Flush());
    ValueOf(repository->SaveSnapshot({.tree = id}));
  }
  const auto good = [&] {
    const auto repository = TryOpen(directory.path());
    return repository.ok() && (*repository)->LoadBlob(BlobType::kData, id).ok() &&
           (*repository)->Snapshots().ok();
  };
  ASSERT_TRUE(good());
  for (const char* kind : {"config", "index", "snapshots", "data"}) {
    for (const std::filesystem::path& file :
         kind == std::string("config") ? std::vector<std::filesystem::path>{directory / "config"}
                                       : FilesIn(directory / kind)) {
      // Behind the blob comes the pack's header, which only `restic check` reads.
      const uint64_t size = kind == std::string("data")
                                ? 332
                                : static_cast<uint64_t>(std::filesystem::file_size(file));
      for (uint64_t at = 0; at < size; at += 1 + random() % 100) {
        std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
        bytes.seekg(static_cast<std::streamoff>(at));
        const auto old = static_cast<char>(bytes.get());
        bytes.seekp(static_cast<std::streamoff>(at));
        bytes.put(static_cast<char>(old ^ 4));
        bytes.flush();
        EXPECT_FALSE(good()) << file << " at " << at;
        bytes.seekp(static_cast<std::streamoff>(at));
        bytes.put(old);
      }
    }
  }
  EXPECT_TRUE(good());
}

TEST(Repository, RespectsExclusiveLocks) {
  const test::TempDir directory;
  ASSERT_OK(Repository::Create(BucketAt(directory.path()), "", Secret(kPassword)));
  // Shared locks don't exclude each other.
  const auto first = ValueOf(TryOpen(directory.path()));
  const auto second = ValueOf(TryOpen(directory.path()));
  EXPECT_EQ(FilesIn(directory / "locks").size(), 2u);
  FileStore store(BucketAt(directory.path()), "");
  const std::string key_path = FilesIn(directory / "keys").at(0);
  std::ifstream key_file(key_path);
  const std::string key_text((std::istreambuf_iterator<char>(key_file)), {});
  store.SetKey(ValueOf(OpenKeyFile(ValueOf(DecodeKeyFile(key_text)), Secret(kPassword))), 2);
  const Id lock =
      ValueOf(store.Save(FileKind::kLock, EncodeLock({.time = absl::Now() - absl::Hours(1),
                                                      .exclusive = true,
                                                      .host = "other",
                                                      .user = "prune",
                                                      .pid = 17})));
  const absl::Status refused = TryOpen(directory.path()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_NE(refused.message().find("prune@other"), std::string::npos);
  EXPECT_NE(refused.message().find("stale"), std::string::npos);
  ASSERT_OK(store.Remove(FileKind::kLock, lock));
  ValueOf(TryOpen(directory.path()));
  // No snapshot is published without the lock.
  ValueOf(first->SaveSnapshot({}));
  for (const auto& file : FilesIn(directory / "locks")) std::filesystem::remove(file);
  EXPECT_TRUE(absl::IsAborted(first->SaveSnapshot({}).status()));
}

// Who only reads looks for an exclusive lock again at the end: it may be written at the same time.
TEST(Repository, ConfirmsItsLockLater) {
  const test::TempDir directory;
  ASSERT_OK(Repository::Create(BucketAt(directory.path()), "", Secret(kPassword)));
  const auto open = [&](std::chrono::milliseconds pause) {
    return ValueOf(Repository::Open(BucketAt(directory.path()), "", Secret(kPassword), true,
                                    {.lock = {.pause = pause}, .confirm_later = true}));
  };
  const auto begin = std::chrono::steady_clock::now();
  const auto repository = open(std::chrono::milliseconds(300));
  EXPECT_EQ(FilesIn(directory / "locks").size(), 1u);
  ASSERT_OK(repository->ConfirmLock());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(300));
  const auto late = open(std::chrono::milliseconds(1));
  FileStore store(BucketAt(directory.path()), "");
  std::ifstream key_file(FilesIn(directory / "keys").at(0));
  const std::string key_text((std::istreambuf_iterator<char>(key_file)), {});
  store.SetKey(ValueOf(OpenKeyFile(ValueOf(DecodeKeyFile(key_text)), Secret(kPassword))), 2);
  const LockFile prune{.time = absl::Now(), .exclusive = true, .host = "other", .user = "prune"};
  ValueOf(store.Save(FileKind::kLock, EncodeLock(prune)));
  EXPECT_TRUE(absl::IsFailedPrecondition(late->ConfirmLock()));
  EXPECT_TRUE(
      absl::IsFailedPrecondition(Repository::Open(BucketAt(directory.path()), "", Secret(kPassword),
                                                  true, {.confirm_later = true})
                                     .status()));
}

TEST(Repository, RefreshesItsLock) {
  const test::TempDir directory;
  ASSERT_OK(Repository::Create(BucketAt(directory.path()), "", Secret(kPassword)));
  const auto repository = ValueOf(Repository::Open(
      BucketAt(directory.path()), "", Secret(kPassword), true,
      {.lock = {.refresh = std::chrono::milliseconds(20), .pause = std::chrono::milliseconds(1)}}));
  const std::filesystem::path before = FilesIn(directory / "locks").at(0);
  for (int i = 0; i < 1000 && std::filesystem::exists(before); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(std::filesystem::exists(before));
  ValueOf(repository->SaveSnapshot({}));
}

// Others may have taken it for stale and removed what it protects, even if it is still there.
TEST(Repository, ALockThatIsTooOldProtectsNothing) {
  const test::TempDir directory;
  ASSERT_OK(Repository::Create(BucketAt(directory.path()), "", Secret(kPassword)));
  const auto repository = ValueOf(Repository::Open(
      BucketAt(directory.path()), "", Secret(kPassword), true,
      {.lock = {.stale = std::chrono::milliseconds(50), .pause = std::chrono::milliseconds(1)}}));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(FilesIn(directory / "locks").size(), 1u);
  const absl::Status refused = repository->SaveSnapshot({}).status();
  EXPECT_TRUE(absl::IsAborted(refused)) << refused;
  EXPECT_FALSE(std::filesystem::exists(directory / "snapshots") &&
               !FilesIn(directory / "snapshots").empty());
}

TEST(Repository, SkipsIndexesThatAreSuperseded) {
  const test::TempDir directory;
  ASSERT_OK(Repository::Create(BucketAt(directory.path()), "", Secret(kPassword)));
  std::mt19937_64 random(9);
  Id id;
  {
    const auto repository = ValueOf(TryOpen(directory.path()));
    id = ValueOf(repository->SaveBlob(BlobType::kData, RandomBytes(random, 300)));
    ASSERT_OK(repository->Flush());
  }
  const std::string old = FilesIn(directory / "index").at(0).filename();
  FileStore store(BucketAt(directory.path()), "");
  std::ifstream key_file(FilesIn(directory / "keys").at(0));
  const std::string key_text((std::istreambuf_iterator<char>(key_file)), {});
  store.SetKey(ValueOf(OpenKeyFile(ValueOf(DecodeKeyFile(key_text)), Secret(kPassword))), 2);
  ValueOf(store.Save(FileKind::kIndex, R"({"supersedes":[")" + old + R"("],"packs":[]})"));
  const auto repository = ValueOf(TryOpen(directory.path()));
  EXPECT_FALSE(repository->Find(BlobType::kData, id).has_value());
}

}  // namespace repository_test
}  // namespace cbt::repository

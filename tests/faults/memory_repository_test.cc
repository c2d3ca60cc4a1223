// Memory runs out while blobs are stored: what Flush() calls stored is in an index, and each pack's
// header says what the pack holds.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "repository/blob_index.h"
#include "repository/lock.h"
#include "repository/pack_writer.h"
#include "repository/parallel.h"
#include "repository/repository.h"
#include "tests/bucket/passing_bucket.h"
#include "tests/faults/support/failing_memory.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::repository {
namespace memory_repository_test {

using test::FailAllocation;
using test::ValueOf;

std::unique_ptr<bucket::Bucket> Place(const std::string& path, bool local) {
  auto directory = ValueOf(bucket::OpenDirectoryBucket(path));
  if (local) return directory;
  return std::make_unique<bucket::PassingBucket>(std::move(directory));
}

// A call that memory may fail.
template <typename Call>
absl::Status Try(const Call& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("thrown");
  }
}

// What the indexes name, each blob with its place, after a look at the packs.
std::set<Id> Indexed(FileStore& store) {
  std::set<Id> ids;
  std::map<Id, std::vector<PackedBlob>> packs;
  for (const FileInfo& file : ValueOf(store.ListAll(FileKind::kIndex, 1000))) {
    const std::string text = ValueOf(store.Load(FileKind::kIndex, file.id, 64 << 20));
    std::vector<Id> supersedes;
    EXPECT_OK(DecodeIndex(text, supersedes, [&](const IndexedPack& pack) {
      packs[pack.id] = pack.blobs;
      for (const PackedBlob& blob : pack.blobs) ids.insert(blob.id);
      return absl::OkStatus();
    }));
  }
  for (const FileInfo& file : ValueOf(store.ListAll(FileKind::kPack, 1000))) {
    const std::vector<uint8_t> pack = ValueOf(store.Get(FileKind::kPack, file.id, 64 << 20));
    const std::span<const uint8_t> tail = std::span(pack).last(4);
    const size_t header_bytes = size_t{tail[0]} | size_t{tail[1]} << 8 | size_t{tail[2]} << 16;
    const size_t body_bytes = pack.size() - 4 - header_bytes;
    const std::vector<uint8_t> header =
        ValueOf(store.key().Open(std::span(pack).subspan(body_bytes, header_bytes)));
    const auto blobs = DecodePackHeader(header, body_bytes);
    EXPECT_OK(blobs) << blobs.status();
    if (!blobs.ok() || !packs.contains(file.id)) continue;
    for (size_t i = 0; i < blobs->size(); ++i) {
      EXPECT_EQ((*blobs)[i].offset, packs[file.id].at(i).offset);
    }
  }
  return ids;
}

// A blob whose Add() failed may not be counted as stored, nor may the others be lost with it.
TEST(PacksOutOfMemory, WhatIsFlushedIsThere) {
  constexpr size_t kBlobs = kMaxPackBlobs + 5;  // a pack and the beginning of one
  const std::vector<uint8_t> sealed(kSealBytes + 1, 7);
  for (const bool local : {true, false}) {
    bool failed = true;
    int64_t n = 1;
    // Each of the first ones, and some of those that the index makes for each blob.
    for (; failed; n += 1 + n / 32) {
      const test::TempDir directory;
      FileStore store(Place(directory.path(), local), "");
      store.SetKey(ValueOf(CryptoKey::Random()), 2);
      std::set<Id> stored;
      std::vector<absl::Status> flushed;
      {
        PackWriter writer(store, 2, [](const IndexedPack&) { return absl::OkStatus(); });
        const FailAllocation fails(n);
        for (size_t i = 0; i < kBlobs; ++i) {
          PackedBlob blob{.length = static_cast<uint32_t>(sealed.size())};
          std::memcpy(blob.id.bytes.data(), &i, sizeof i);
          // Callers in other threads go on for a while.
          const bool added = Try([&] { return writer.Add(blob, sealed); }).ok();
          const test::Undisturbed undisturbed;
          if (added) stored.insert(blob.id);
        }
        for (int i = 0; i < 2; ++i) {
          const absl::Status status = Try([&] { return writer.Flush(); });
          const test::Undisturbed undisturbed;
          flushed.push_back(status);
        }
        failed = fails.has_failed();
      }
      const std::set<Id> indexed = Indexed(store);
      if (!failed) {
        EXPECT_OK(flushed.back());
      }
      if (flushed.back().ok()) {
        EXPECT_TRUE(indexed == stored)
            << n << ": " << indexed.size() << " indexed, " << stored.size() << " stored";
      }
      if (testing::Test::HasFailure()) break;
    }
    EXPECT_GT(n, 50);
  }
}

// The first to save a blob fails; the next one must not hear that it is there.
TEST(PacksOutOfMemory, WhatCouldNotBeSavedIsNotThere) {
  const test::TempDir directory;
  const Secret password("password");
  ASSERT_OK(Repository::Create(Place(directory.path(), true), "", password));
  const auto open = [&] {
    auto repository = ValueOf(Repository::Open(Place(directory.path(), true), "", password, false));
    EXPECT_OK(repository->LoadIndex(true));
    return repository;
  };
  bool failed = true;
  int64_t n = 1;
  for (; failed; ++n) {
    // Another one and larger than those before, which leave memory behind.
    std::vector<uint8_t> blob(4096 * static_cast<size_t>(n));
    for (size_t i = 0; i < blob.size(); ++i) {
      blob[i] = static_cast<uint8_t>((i + static_cast<size_t>(n)) * 2654435761u >> 20);
    }
    const auto repository = open();
    {
      const FailAllocation fails(n);
      Try([&] { return repository->SaveBlob(BlobType::kData, blob).status(); }).IgnoreError();
      failed = fails.has_failed();
    }
    const absl::Status again = repository->SaveBlob(BlobType::kData, blob).status();
    const absl::Status flushed = repository->Flush();
    EXPECT_EQ(again.ok(), flushed.ok()) << n;
    if (!failed) {
      EXPECT_OK(flushed);
    }
    if (!flushed.ok()) continue;
    EXPECT_OK(open()->LoadBlob(BlobType::kData, Id::Of(blob))) << n;
  }
  EXPECT_GT(n, 3);
}

// What threads throw would end the process, and leave locks and files of it behind.
TEST(PacksOutOfMemory, ALoopEndsWithAnError) {
  for (const size_t threads : {1u, 3u}) {
    std::optional<FailAllocation> fails;
    const absl::Status status = ParallelFor(threads, threads, {}, [&](size_t i) -> absl::Status {
      if (i == 0) {
        fails.emplace(1, true);
        throw std::bad_alloc();
      }
      return absl::OkStatus();
    });
    fails.reset();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  }
}

// The lock is refreshed by a thread of its own.
TEST(PacksOutOfMemory, ALockThatCantBeRefreshedIsOlderAndNoMore) {
  const test::TempDir directory;
  FileStore store(Place(directory.path(), true), "");
  store.SetKey(ValueOf(CryptoKey::Random()), 2);
  using std::chrono::milliseconds;
  const auto lock =
      ValueOf(SharedLock::Take(store, {.refresh = milliseconds(1), .pause = milliseconds(1)}));
  {
    const FailAllocation fails(1, true);
    for (int i = 0; i < 5000 && !fails.has_failed(); ++i) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_TRUE(fails.has_failed());
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_OK(lock->Check());
}

// The table of blobs grows with a claim.
TEST(PacksOutOfMemory, AClaimThatFailedIsNone) {
  constexpr uint32_t kClaims = 3000;
  BlobIndex index(1 << 20);
  for (uint32_t i = 0; i < kClaims; ++i) {
    Id id;
    std::memcpy(id.bytes.data(), &i, sizeof i);
    for (int64_t n = 1;; ++n) {
      const FailAllocation fails(n);
      try {
        EXPECT_TRUE(index.Claim(BlobType::kData, id)) << i;
        break;
      } catch (const std::bad_alloc&) {
        // Once more, with the next one.
      }
    }
  }
  EXPECT_EQ(index.size(), kClaims);
}

}  // namespace memory_repository_test
}  // namespace cbt::repository

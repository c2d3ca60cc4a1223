// Packs behind the caller: how many are on their way, and what an error of one means.
#include "repository/pack_writer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "repository/repository.h"
#include "tests/bucket/passing_bucket.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::repository {
namespace pack_writer_test {

using test::ValueOf;

constexpr char kPassword[] = "password";
constexpr size_t kBlobBytes = size_t{4} << 20;  // four or five in a pack
constexpr size_t kBlobs = 40;

// How packs are put.
struct Puts {
  std::chrono::milliseconds delay{0};
  int wait_for = 0;  // how many at a time there have to be before one ends
  int fails_at = -1;
  std::atomic<int> begun = 0;
  std::atomic<int> now = 0;
  std::atomic<int> most = 0;
};

// A place that is not local.
class SlowBucket final : public bucket::PassingBucket {
 public:
  SlowBucket(std::unique_ptr<bucket::Bucket> bucket, Puts& puts)
      : PassingBucket(std::move(bucket)), puts_(puts) {}

  absl::Status Put(const std::string& key, std::span<const uint8_t> bytes) override {
    if (!key.starts_with("data/")) return PassingBucket::Put(key, bytes);
    const int now = ++puts_.now;
    for (int most = puts_.most; most < now && !puts_.most.compare_exchange_weak(most, now);) {
    }
    const int number = puts_.begun++;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (puts_.most < puts_.wait_for && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(puts_.delay);
    absl::Status put = number == puts_.fails_at ? absl::UnavailableError("no such luck")
                                                : PassingBucket::Put(key, bytes);
    --puts_.now;
    return put;
  }

 private:
  Puts& puts_;
};

class PackWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(Repository::Create(Folder(), "", Secret(kPassword)));
    room_.resize((kBlobs + kBlobBytes) / sizeof(uint64_t) + 1);
    MakeOthers();
  }

  std::unique_ptr<bucket::Bucket> Folder() const {
    return ValueOf(bucket::OpenDirectoryBucket(directory_.path()));
  }
  std::unique_ptr<Repository> Open(std::unique_ptr<bucket::Bucket> bucket, size_t uploads) const {
    auto repository = ValueOf(
        Repository::Open(std::move(bucket), "", Secret(kPassword), true,
                         {.lock = {.pause = std::chrono::milliseconds(1)}, .uploads = uploads}));
    EXPECT_OK(repository->LoadIndex(true));
    return repository;
  }
  std::unique_ptr<Repository> OpenSlow(size_t uploads) {
    return Open(std::make_unique<SlowBucket>(Folder(), puts_), uploads);
  }

  void MakeOthers() {
    for (uint64_t& word : room_) word = random_();
  }
  // Noise that is another one from each offset.
  std::span<const uint8_t> Blob(size_t i) const {
    return std::span(reinterpret_cast<const uint8_t*>(room_.data()) + i, kBlobBytes);
  }
  void SaveAll(Repository& repository, std::vector<Id>& ids) const {
    for (size_t i = 0; i < kBlobs; ++i) {
      ids.push_back(ValueOf(repository.SaveBlob(BlobType::kData, Blob(i))));
    }
    ASSERT_OK(repository.Flush());
  }

  const test::TempDir directory_;
  std::mt19937_64 random_{3};
  std::vector<uint64_t> room_;
  Puts puts_;
};

TEST_F(PackWriterTest, OneThreadKeepsManyOnTheirWay) {
  for (const int uploads : {1, 3}) {
    puts_.most = 0;
    puts_.wait_for = uploads;
    std::vector<Id> ids;
    {
      const auto repository = OpenSlow(static_cast<size_t>(uploads));
      SaveAll(*repository, ids);
      EXPECT_EQ(puts_.most, uploads);
      EXPECT_EQ(puts_.now, 0) << "Flush() waits for all";
      EXPECT_EQ(repository->stored().blobs, ids.size());
    }
    const auto repository = Open(Folder(), 1);
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::vector<uint8_t> blob = ValueOf(repository->LoadBlob(BlobType::kData, ids[i]));
      EXPECT_TRUE(std::equal(blob.begin(), blob.end(), Blob(i).begin(), Blob(i).end())) << i;
    }
    MakeOthers();
  }
}

TEST_F(PackWriterTest, MemoryBoundsThem) {
  constexpr int kMost = 8;
  puts_.wait_for = kMost;
  puts_.delay = std::chrono::milliseconds(500);  // in which no further one begins
  const auto repository = OpenSlow(100);
  std::vector<Id> ids;
  SaveAll(*repository, ids);
  EXPECT_EQ(puts_.most, kMost);
}

TEST_F(PackWriterTest, LocalPlacesAreWrittenByTheCaller) {
  class Local final : public bucket::PassingBucket {
   public:
    using PassingBucket::PassingBucket;
    bool is_local() const override { return true; }
  };
  const auto repository =
      Open(std::make_unique<Local>(std::make_unique<SlowBucket>(Folder(), puts_)), 8);
  puts_.delay = std::chrono::milliseconds(20);
  std::vector<Id> ids;
  SaveAll(*repository, ids);
  EXPECT_EQ(puts_.most, 1);
}

// Whichever pack is lost.
TEST_F(PackWriterTest, AnErrorStays) {
  for (const int at : {0, 4, 9}) {
    puts_.fails_at = puts_.begun + at;
    const auto repository = OpenSlow(3);
    absl::Status status;
    for (size_t i = 0; i < kBlobs && status.ok(); ++i) {
      status = repository->SaveBlob(BlobType::kData, Blob(i)).status();
    }
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
    EXPECT_TRUE(absl::IsUnavailable(repository->Flush())) << at;
    EXPECT_TRUE(absl::IsUnavailable(repository->Flush())) << at;
    EXPECT_TRUE(absl::IsUnavailable(
        repository->SaveBlob(BlobType::kData, Blob(0).first(1000 + static_cast<size_t>(at)))
            .status()));
    MakeOthers();
  }
}

}  // namespace pack_writer_test
}  // namespace cbt::repository

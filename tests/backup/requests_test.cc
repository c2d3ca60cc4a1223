// How many requests a restore and a comparison make.
#include <gtest/gtest.h>

#include "tests/backup/fixture.h"

namespace cbt::backup {
namespace requests_test {

using namespace test_support;  // NOLINT(google-build-using-namespace)
using test::ValueOf;

struct Requests {
  std::atomic<int> gets{0};
  std::atomic<uint64_t> bytes{0};
};

// Counts what is read from packs.
class CountingBucket final : public bucket::PassingBucket {
 public:
  CountingBucket(std::unique_ptr<bucket::Bucket> bucket, Requests& requests)
      : PassingBucket(std::move(bucket)), requests_(requests) {}

  absl::StatusOr<Bytes> GetRange(const std::string& key, uint64_t offset,
                                 uint64_t length) override {
    ++requests_.gets;
    requests_.bytes += length;
    return PassingBucket::GetRange(key, offset, length);
  }

 private:
  Requests& requests_;
};

Bytes Noise(std::mt19937_64& random, size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i + 8 <= size; i += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  return bytes;
}

TEST(Requests, ReadNeighboursTogether) {
  constexpr size_t kBlobs = 40;
  std::mt19937_64 random(11);
  const test::TempDir directory;
  MakeRepository(directory.path());
  History history;
  Bytes bytes = Noise(random, kBlobs << 20);
  // Zeros, twice the same, and an increment in another pack.
  std::memset(bytes.data() + (5 << 20), 0, 2 << 20);
  std::memcpy(bytes.data() + (9 << 20), bytes.data() + (20 << 20), 1 << 20);
  history.Add("one", bytes);
  std::memset(bytes.data() + (30 << 20) + 17, 0x55, 4000);
  history.Add("two", bytes);
  {
    const auto repository = OpenIn(BucketAt(directory.path()));
    ValueOf(BackUp(*repository, history, "one"));
    ASSERT_EQ(ValueOf(BackUp(*repository, history, "two")).blobs_read, 1u);
  }
  Requests requests;
  const auto repository =
      OpenIn(std::make_unique<CountingBucket>(BucketAt(directory.path()), requests));
  for (const std::string handle : {"one", "two"}) {
    const VolumeContent content =
        ValueOf(LoadContent(*repository, ValueOf(FindVolumeSnapshot(*repository, "vol", handle))));
    requests.gets = 0;
    requests.bytes = 0;
    MemoryOutput output(Bytes(content.size));
    ValueOf(Restore(*repository, content, output, Target::kZero, {.threads = 3}));
    EXPECT_TRUE(output.bytes == history.at(handle));
    // Three packs, of which each takes two or three.
    EXPECT_LE(requests.gets, 10);
    EXPECT_LT(requests.bytes, (kBlobs + 1) << 20);

    requests.gets = 0;
    const Comparison compared =
        ValueOf(Compare(*repository, content, MemoryInput(history.at(handle)), 100, {}));
    EXPECT_FALSE(compared.difference.has_value());
    EXPECT_EQ(compared.blobs, kBlobs);
    EXPECT_LE(requests.gets, 11);

    // Only what differs is read.
    output.bytes[(33 << 20) + 5] ^= 1;
    requests.gets = 0;
    output.written = 0;
    ValueOf(Restore(*repository, content, output, Target::kKept, {.threads = 3}));
    EXPECT_TRUE(output.bytes == history.at(handle));
    EXPECT_EQ(requests.gets, 1);
    EXPECT_EQ(output.written, 1u << 20);
  }
}

}  // namespace requests_test
}  // namespace cbt::backup

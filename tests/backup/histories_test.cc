// The first law of backups: a restored volume equals its snapshot, byte by byte, in every history,
// also of backups that were killed.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "tests/backup/fixture.h"
#include "tests/support/figures.h"

namespace cbt::backup {
namespace histories_test {

using namespace test_support;  // NOLINT(google-build-using-namespace)
using test::ValueOf;

uint64_t Below(std::mt19937_64& random, uint64_t bound) { return random() % bound; }

// Sizes around multiples of a blob.
size_t RandomSize(std::mt19937_64& random) {
  const size_t blobs = Below(random, 5);
  const int64_t size = static_cast<int64_t>(blobs << 20) +
                       std::array<int64_t, 6>{0, 0, 1, -1, 4096, 700'000}[Below(random, 6)];
  return static_cast<size_t>(std::max<int64_t>(size, 0));
}

// Writes, zeros, copies of other parts, growth and shrinkage.
Bytes Changed(std::mt19937_64& random, Bytes bytes) {
  if (Below(random, 4) == 0) bytes.resize(RandomSize(random));
  for (uint64_t i = Below(random, 6); i > 0 && !bytes.empty(); --i) {
    const size_t begin = Below(random, bytes.size());
    const size_t length =
        std::min<size_t>(bytes.size() - begin, 1 + Below(random, i % 2 == 0 ? 5000 : 2'000'000));
    switch (Below(random, 3)) {
      case 0:
        std::memset(bytes.data() + begin, 0, length);
        break;
      case 1:
        std::memmove(bytes.data() + begin, bytes.data() + Below(random, bytes.size() - length + 1),
                     length);
        break;
      default: {
        std::mt19937_64 noise(random());
        for (size_t at = begin; at < begin + length; ++at) {
          bytes[at] = static_cast<uint8_t>(noise());
        }
      }
    }
  }
  return bytes;
}

TEST(Histories, AreRestoredByteForByte) {
  const uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr size_t kPerRepository = 10;
  const size_t histories = 100 * static_cast<size_t>(test::TestScale());
  for (size_t done = 0; done < histories; done += kPerRepository) {
    const test::TempDir directory;
    MakeRepository(directory.path());
    for (size_t volume = 0; volume < kPerRepository; ++volume) {
      History history;
      Bytes bytes(RandomSize(random));
      const std::string name = "vol" + std::to_string(volume);
      const auto repository = OpenIn(BucketAt(directory.path()));
      const uint64_t snapshots = 1 + Below(random, 4);
      for (uint64_t i = 0; i < snapshots; ++i) {
        bytes = Changed(random, std::move(bytes));
        const std::string handle = name + "/" + std::to_string(i);
        history.Add(handle, bytes);
        history.delta =
            Below(random, 5) == 0 ? absl::FailedPreconditionError("no delta") : absl::OkStatus();
        history.allocated =
            Below(random, 3) == 0 ? absl::UnimplementedError("not known") : absl::OkStatus();
        const CreateResult made =
            ValueOf(BackUp(*repository, history, handle,
                           {.volume = name, .threads = 1 + static_cast<size_t>(Below(random, 3))}));
        ASSERT_TRUE(made.snapshot.tier == "delta" || !history.delta.ok() || i == 0)
            << made.snapshot.tier;
      }
      for (uint64_t i = 0; i < snapshots; ++i) {
        const std::string handle = name + "/" + std::to_string(i);
        ASSERT_TRUE(RestoreOf(*repository, name, handle) == history.at(handle))
            << "seed " << seed << ", " << handle;
      }
    }
  }
}

// A killed backup leaves nothing that is wrong, and the next one finishes it.
TEST(Histories, SurviveKills) {
  const uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  const test::TempDir directory;
  MakeRepository(directory.path());
  History history;
  Bytes bytes(70 << 20);
  history.Add("0", bytes);
  ValueOf(BackUp(*OpenIn(BucketAt(directory.path())), history, "0"));
  const size_t kills = 20 * static_cast<size_t>(test::TestScale());
  std::string published = "0";
  for (size_t i = 1; i <= kills; ++i) {
    // Incompressible in several packs, so that there is much to be killed in.
    const size_t begin = Below(random, bytes.size() >> 1);
    std::mt19937_64 noise(random());
    for (size_t at = begin; at < begin + (i % 8 == 0 ? 30u << 20 : 2u << 20); at += 8) {
      const uint64_t word = noise();
      std::memcpy(bytes.data() + (at & ~size_t{7}), &word, 8);
    }
    const std::string handle = std::to_string(i);
    history.Add(handle, bytes);
    bool finished = false;
    {
      // The lock is stored first.
      absl::StatusOr<std::unique_ptr<repository::Repository>> repository =
          repository::Repository::Open(
              std::make_unique<DyingBucket>(BucketAt(directory.path()),
                                            static_cast<int>(Below(random, 10)),
                                            Below(random, 2) == 0),
              "", Secret(kPassword), true, {.lock = {.pause = std::chrono::milliseconds(0)}});
      if (repository.ok()) {
        test::ValueOf((*repository)->LoadIndex(true));
        finished = BackUp(**repository, history, handle).ok();
      }
    }
    const auto repository = OpenIn(BucketAt(directory.path()));
    const auto newest = ValueOf(FindVolumeSnapshot(*repository, "vol", "latest"));
    if (newest.handle != handle) {
      ASSERT_FALSE(finished);
      ASSERT_EQ(newest.handle, published);
      const CreateResult made = ValueOf(BackUp(*repository, history, handle));
      EXPECT_EQ(made.snapshot.tier, "delta");
    }
    history.Forget(published);
    published = handle;
    ASSERT_TRUE(RestoreOf(*repository, "vol", handle) == bytes) << "seed " << seed << ", " << i;
  }
  // Locks of the killed stay, and nothing runs any more.
  std::filesystem::remove_all(directory / "locks");
  if (std::string(CBT_TEST_RESTIC).empty()) GTEST_SKIP() << "restic is not installed";
  const std::string restic = std::string("RESTIC_PASSWORD='") + kPassword + "' " + CBT_TEST_RESTIC +
                             " --no-cache -q -r " + directory.path();
  EXPECT_EQ(std::system((restic + " check --read-data").c_str()), 0);
  std::filesystem::create_directory(directory / "locks");
}

// What a killed backup stored and indexed is not stored twice.
TEST(Histories, GoOnWhereTheyWereKilled) {
  const test::TempDir directory;
  MakeRepository(directory.path());
  History history;
  Bytes bytes(200 << 20);
  std::mt19937_64 noise(11);
  for (size_t at = 0; at < bytes.size(); at += 8) {
    const uint64_t word = noise();
    std::memcpy(bytes.data() + at, &word, 8);
  }
  history.Add("0", std::move(bytes));
  {
    const auto repository =
        OpenIn(std::make_unique<DyingBucket>(BucketAt(directory.path()), 12, false), 1);
    // One thread and one upload, so that the order of objects is known.
    EXPECT_TRUE(absl::IsUnavailable(BackUp(*repository, history, "0", {.threads = 1}).status()));
  }
  const auto repository = OpenIn(BucketAt(directory.path()));
  const CreateResult made = ValueOf(BackUp(*repository, history, "0"));
  // Of 12 objects, one was the lock and two were indexes of four packs each.
  EXPECT_LE(made.stored.bytes, uint64_t{(200 - 4 * 16 - 40) << 20});
  EXPECT_TRUE(RestoreOf(*repository, "vol", "") == history.newest());
}

}  // namespace histories_test
}  // namespace cbt::backup

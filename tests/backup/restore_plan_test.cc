// Restores in place where it is said what the target holds.
#include "programs/backup/restore_plan.h"

#include <gtest/gtest.h>

#include "tests/backup/fixture.h"
#include "tests/support/figures.h"

namespace cbt::backup {
namespace restore_plan_test {

using namespace test_support;  // NOLINT(google-build-using-namespace)
using test::ValueOf;

Bytes Noise(std::mt19937_64& random, size_t size) {
  Bytes bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// Writes at random places, and what was written.
std::vector<Extent> Scribble(std::mt19937_64& random, Bytes& bytes, int writes) {
  std::vector<Extent> written;
  uint64_t at = 0;
  for (int i = 0; i < writes && at + 2 < bytes.size(); ++i) {
    at += random() % (bytes.size() - at - 1);
    const uint64_t length = std::min<uint64_t>(1 + random() % 3000, bytes.size() - at);
    for (uint64_t k = 0; k < length; ++k) bytes[at + k] = static_cast<uint8_t>(random());
    if (!written.empty() && written.back().end() == at) {
      written.back().length += length;
    } else {
      written.push_back({at, length});
    }
    at += length;
  }
  return written;
}

class RestorePlan : public testing::Test {
 protected:
  void SetUp() override { MakeRepository(directory_.path()); }

  void Add(const std::string& handle, Bytes bytes) {
    history_.Add(handle, std::move(bytes));
    ValueOf(BackUp(*OpenIn(BucketAt(directory_.path())), history_, handle));
  }
  VolumeContent ContentOf(repository::Repository& repository, const std::string& handle) {
    return ValueOf(LoadContent(repository, ValueOf(FindVolumeSnapshot(repository, "vol", handle))));
  }
  static std::unique_ptr<ExtentCursor> Cursor(std::vector<Extent> extents, uint64_t capacity) {
    return ValueOf(MakeExtentCursor(std::move(extents), {.capacity = capacity, .granularity = 1}));
  }

  const test::TempDir directory_;
  History history_;
};

TEST_F(RestorePlan, LooksOnlyAtWhatDiffers) {
  std::mt19937_64 random(5);
  Bytes bytes = Noise(random, 8 << 20);
  Add("one", bytes);
  bytes[5 << 20] ^= 1;
  Add("two", bytes);
  const auto repository = OpenIn(BucketAt(directory_.path()));
  const VolumeContent one = ContentOf(*repository, "one");
  const VolumeContent two = ContentOf(*repository, "two");
  const HeldContent as_two{.snapshot = two, .target_bytes = bytes.size()};
  EXPECT_EQ(ValueOf(FindMissing(one, as_two)), std::vector<uint32_t>{5});
  EXPECT_TRUE(ValueOf(FindMissing(two, as_two)).empty());
  // The last byte of one blob and the first of another, and a byte of the last one.
  const auto written = Cursor({{(2 << 20) - 1, 2}, {(8 << 20) - 1, 1}}, bytes.size());
  const HeldContent touched{
      .snapshot = two, .written = written.get(), .target_bytes = bytes.size()};
  EXPECT_EQ(ValueOf(FindMissing(two, touched)), (std::vector<uint32_t>{1, 2, 7}));
  // What is not known is not taken for granted.
  const auto shorter = Cursor({}, (4 << 20) - 1);
  const HeldContent partly{.snapshot = two, .written = shorter.get(), .target_bytes = bytes.size()};
  EXPECT_EQ(ValueOf(FindMissing(two, partly)), (std::vector<uint32_t>{3, 4, 5, 6, 7}));
  const HeldContent small{.snapshot = two, .target_bytes = (6 << 20) + 1};
  EXPECT_EQ(ValueOf(FindMissing(two, small)), (std::vector<uint32_t>{6, 7}));

  MemoryOutput target(history_.at("two"));
  ValueOf(Restore(*repository, one, target, Target::kKept,
                  {.only = ValueOf(FindMissing(one, as_two))}));
  EXPECT_TRUE(target.bytes == history_.at("one"));
  EXPECT_EQ(target.written, uint64_t{1 << 20});
}

TEST_F(RestorePlan, AnErrorOfTheChangesIsOne) {
  Add("one", Bytes(3 << 20, 7));
  const auto repository = OpenIn(BucketAt(directory_.path()));
  const VolumeContent one = ContentOf(*repository, "one");
  class Failing final : public ExtentCursor {
   public:
    Failing() : ExtentCursor({.capacity = 3 << 20, .granularity = 1}) {}

   private:
    absl::Status DoSeek(uint64_t) override { return absl::OkStatus(); }
    absl::StatusOr<uint64_t> DoNext(ExtentBatch&) override {
      return absl::DataLossError("the list was cut");
    }
  } failing;
  EXPECT_TRUE(absl::IsDataLoss(
      FindMissing(one, {.snapshot = one, .written = &failing, .target_bytes = 3 << 20}).status()));
}

TEST_F(RestorePlan, NoticesOtherData) {
  std::mt19937_64 random(6);
  const Bytes bytes = Noise(random, 6 << 20);
  Add("one", bytes);
  const auto repository = OpenIn(BucketAt(directory_.path()));
  const VolumeContent one = ContentOf(*repository, "one");
  MemoryOutput same(bytes);
  EXPECT_OK(CheckHeld(one, {}, same, 32));
  MemoryOutput other(Noise(random, bytes.size()));
  const absl::Status noticed = CheckHeld(one, {}, other, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(noticed)) << noticed;
  // What is restored anyway may be anything.
  EXPECT_OK(CheckHeld(one, std::vector<uint32_t>{0, 1, 2, 3, 4, 5}, other, 32));
  Bytes one_wrong = bytes;
  one_wrong[3 << 20] ^= 1;
  MemoryOutput wrong(one_wrong);
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckHeld(one, {}, wrong, 32)));
  EXPECT_OK(CheckHeld(one, std::vector<uint32_t>{3}, wrong, 32));
}

// Of a volume that is nearly all zero, most samples are of what is not.
TEST_F(RestorePlan, SamplesData) {
  std::mt19937_64 random(7);
  Bytes bytes(200 << 20);
  std::ranges::copy(Noise(random, 1 << 20), bytes.begin() + (77 << 20));
  Add("one", bytes);
  const auto repository = OpenIn(BucketAt(directory_.path()));
  const VolumeContent one = ContentOf(*repository, "one");
  MemoryOutput empty(Bytes(bytes.size()));
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckHeld(one, {}, empty, 4)));
}

// From any snapshot with any writes, back to any other one.
TEST_F(RestorePlan, EveryHistoryComesBack) {
  const uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr int kSnapshots = 6;
  Bytes bytes = Noise(random, 4 << 20);
  for (int i = 0; i < kSnapshots; ++i) {
    Scribble(random, bytes, 3);
    if (i % 2 == 1) bytes.resize((2 << 20) + random() % (4 << 20));
    Add(std::to_string(i), bytes);
  }
  const auto repository = OpenIn(BucketAt(directory_.path()));
  const int64_t rounds = 40 * test::TestScale();
  for (int64_t round = 0; round < rounds; ++round) {
    const std::string from = std::to_string(random() % kSnapshots);
    const std::string to = std::to_string(random() % kSnapshots);
    const VolumeContent wanted = ContentOf(*repository, to);
    const VolumeContent held = ContentOf(*repository, from);
    Bytes target = history_.at(from);
    const auto written =
        Cursor(Scribble(random, target, static_cast<int>(random() % 4)), target.size());
    const std::vector<uint32_t> missing = ValueOf(FindMissing(
        wanted, {.snapshot = held, .written = written.get(), .target_bytes = target.size()}));
    MemoryOutput output(std::move(target));
    ASSERT_OK(CheckHeld(wanted, missing, output, 8));
    output.bytes.resize(wanted.size);
    ValueOf(Restore(*repository, wanted, output, Target::kKept, {.only = missing}));
    ASSERT_TRUE(output.bytes == history_.at(to)) << "seed " << seed << ": " << from << " to " << to;
  }
}

}  // namespace restore_plan_test
}  // namespace cbt::backup

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/executor.h"
#include "cbt/source/file_extents.h"
#include "cbt/source/image.h"
#include "cbt/transform.h"
#include "cbt/units.h"
#include "tests/support/cursors.h"
#include "tests/support/generators.h"
#include "tests/support/memory_image.h"
#include "tests/support/resume.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace image_cursor_test {

using absl::StatusCode;
using reference::Ranges;
using test::MemoryImage;
using test::ValueOf;

// An image's bytes and which of its pages are holes.
struct Contents {
  std::vector<uint8_t> bytes;
  std::vector<bool> holes;
  MemoryImage File() const {
    return MemoryImage(bytes, [this](size_t page) { return bool{holes[page]}; });
  }
};

// Random data with zeroed stretches, some of them holes.
Contents AnyContents(size_t size, std::mt19937_64& random) {
  Contents contents{std::vector<uint8_t>(size), {}};
  size_t at = 0;
  while (at < size) {
    const size_t length = std::min<size_t>(size - at, 1 + random() % 20'000);
    const bool zeros = random() % 3 == 0;
    for (size_t i = at; i < at + length; ++i) {
      contents.bytes[i] = zeros ? 0 : static_cast<uint8_t>(random());
    }
    at += length;
  }
  for (size_t page = 0; page * test::kHoleBytes < size; ++page) {
    bool zero = true;
    const size_t end = std::min(size, (page + 1) * test::kHoleBytes);
    for (size_t i = page * test::kHoleBytes; i < end; ++i) zero = zero && contents.bytes[i] == 0;
    contents.holes.push_back(zero && random() % 4 != 0);
  }
  return contents;
}

// A later state of `base`: another size, single changed bytes, stretches zeroed or kept.
Contents Later(const Contents& base, size_t size, std::mt19937_64& random) {
  Contents later = AnyContents(size, random);
  const bool keep_all = random() % 4 == 0;
  size_t at = 0;
  while (at < size) {
    const size_t length = std::min<size_t>(size - at, 1 + random() % 30'000);
    if (keep_all || random() % 4 != 0) {
      for (size_t i = at; i < at + length; ++i) later.bytes[i] = reference::ByteAt(base.bytes, i);
    }
    at += length;
  }
  for (uint64_t changes = random() % 4; changes > 0 && size > 0; --changes) {
    later.bytes[random() % size] ^= 1;
  }
  for (size_t page = 0; page < later.holes.size(); ++page) {
    for (size_t i = page * test::kHoleBytes; i < std::min(size, (page + 1) * test::kHoleBytes);
         ++i) {
      if (later.bytes[i] != 0) later.holes[page] = false;
    }
  }
  return later;
}

// Critical sizes: 0, 1, around blocks and pages, unaligned.
size_t AwkwardSize(size_t block_size, std::mt19937_64& random) {
  const size_t blocks = random() % 6 * block_size;
  switch (random() % 6) {
    case 0:
      return random() % 2;
    case 1:
      return blocks + block_size - 1;
    case 2:
      return blocks + block_size + 1;
    case 3:
      return blocks;
    default:
      return random() % (6 * block_size + 10'000);
  }
}

Ranges CutAtBlock(const Ranges& full, uint64_t offset, uint64_t capacity, uint64_t block_size) {
  return reference::CutAt(full, offset == capacity ? offset : offset / block_size * block_size);
}

class ImageDeltaProperty : public testing::Test {
 protected:
  ThreadPool pool_{2};
};

RC_GTEST_FIXTURE_PROP(ImageDeltaProperty, MatchesByteByByteFromAnyOffset, ()) {
  std::mt19937_64 random = test::AnyRandom();
  ImageOptions options;
  options.block_size = uint64_t{512} << test::Between<int>(0, 8);
  options.executor = random() % 2 == 0 ? &pool_ : nullptr;
  options.chunks_in_flight = random() % 5;
  options.chunks_ahead = random() % 10;
  options.skip_holes = random() % 4 != 0;
  const auto block_size = static_cast<size_t>(options.block_size);
  const Contents base = AnyContents(AwkwardSize(block_size, random), random);
  const size_t size = random() % 3 == 0 ? base.bytes.size() : AwkwardSize(block_size, random);
  const Contents target = Later(base, size, random);
  const MemoryImage base_file = base.File();
  const MemoryImage target_file = target.File();

  const auto set = reference::ChangedBytes(base.bytes, target.bytes, block_size);
  const Ranges full = reference::RunsOf(set);
  auto cursor = ValueOf(MakeImageDeltaCursor(base_file.Open(), target_file.Open(), options));
  RC_ASSERT(cursor->capacity() == size);
  RC_ASSERT(ValueOf(test::Drain(*cursor)) == full);
  for (int i = 0; i < 10; ++i) {
    const uint64_t offset = random() % (size + 1);
    RC_ASSERT(ValueOf(test::DrainFrom(*cursor, offset)) ==
              CutAtBlock(full, offset, size, options.block_size));
  }
  auto blocks = ValueOf(ToBlocks(std::move(cursor), options.block_size));
  RC_ASSERT(ValueOf(test::Drain(*blocks)) == reference::BlocksOf(set, block_size));

  // Allocation: without zeros, and with only the holes left out.
  const std::vector<uint8_t> nothing;
  ImageOptions zeros = options;
  zeros.skip_zeros = true;
  auto nonzero = ValueOf(MakeImageAllocationCursor(target_file.Open(), zeros));
  RC_ASSERT(ValueOf(test::Drain(*nonzero)) ==
            reference::RunsOf(reference::ChangedBytes(nothing, target.bytes, block_size)));
  reference::ByteSet data(size);
  for (size_t i = 0; i < size; ++i) {
    data[i] = !options.skip_holes || !target.holes[i / test::kHoleBytes];
  }
  const Ranges allocated = reference::RunsOf(reference::RoundedOutward(data, block_size));
  auto allocation = ValueOf(MakeImageAllocationCursor(target_file.Open(), options));
  RC_ASSERT(ValueOf(test::Drain(*allocation)) == allocated);
  for (int i = 0; i < 10; ++i) {
    const uint64_t offset = random() % (size + 1);
    RC_ASSERT(ValueOf(test::DrainFrom(*allocation, offset)) ==
              CutAtBlock(allocated, offset, size, options.block_size));
  }
}

// Every starting offset of a small volume, in every block size.
TEST(ImageDeltaTest, E2ResumesAtEveryByteOffset) {
  test::SeededRandom random(1);
  for (const size_t size : std::initializer_list<size_t>{0, 1, 511, 512, 513, 3000, 5000}) {
    const Contents base = AnyContents(size + random() % 700 - (size > 700 ? 350 : 0), random);
    Contents target = Later(base, size, random);
    if (size > 0) target.bytes[size - 1] ^= 1;
    target.holes.assign(target.holes.size(), false);
    const MemoryImage base_file = base.File();
    const MemoryImage target_file = target.File();
    for (const uint64_t block_size : std::initializer_list<uint64_t>{512, 1024, 4096}) {
      const auto full = reference::RunsOf(
          reference::ChangedBytes(base.bytes, target.bytes, static_cast<size_t>(block_size)));
      ASSERT_OK_AND_ASSIGN(auto cursor, MakeImageDeltaCursor(base_file.Open(), target_file.Open(),
                                                             {.block_size = block_size}));
      for (uint64_t offset = 0; offset <= size; ++offset) {
        ASSERT_EQ(ValueOf(test::DrainFrom(*cursor, offset, 2)),
                  CutAtBlock(full, offset, size, block_size))
            << size << " " << block_size << " " << offset;
      }
      EXPECT_EQ(cursor->Seek(size + 1).code(), StatusCode::kOutOfRange);
    }
  }
}

// A hundred thousand offsets, in images that are mostly holes; with CBT_TEST_SCALE=8 they have 1
// MiB.
TEST(ImageDeltaTest, ResumesAtEveryByteOffsetOfSparseImages) {
  test::SeededRandom random(4);
  const size_t size = (test::TestScale() >= 8 ? kMiB : 24'000) - 100;
  std::vector<uint8_t> base(size);
  std::vector<uint8_t> target(size);
  for (int page = 0; page < 4; ++page) {
    const size_t begin = random() % size / 4096 * 4096;
    for (size_t i = begin; i < std::min(size, begin + 4096); i += 1 + random() % 900) base[i] = 1;
  }
  target = base;
  for (int change = 0; change < 6; ++change) {
    const size_t at = random() % size / 4096 * 4096;
    target[at + random() % std::min<size_t>(4096, size - at)] ^= 2;
  }
  target[size - 1] ^= 1;
  const auto file = [](const std::vector<uint8_t>& bytes) {
    return std::make_unique<MemoryImage>(bytes, [&bytes](size_t page) {
      const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(page * test::kHoleBytes);
      const size_t left = bytes.size() - page * test::kHoleBytes;
      return std::all_of(begin,
                         begin + static_cast<std::ptrdiff_t>(std::min(left, test::kHoleBytes)),
                         [](uint8_t byte) { return byte == 0; });
    });
  };
  const auto base_file = file(base);
  const auto target_file = file(target);
  ASSERT_OK_AND_ASSIGN(
      const auto delta,
      MakeImageDeltaCursor(base_file->Open(), target_file->Open(), {.block_size = 512}));
  test::ResumeCheck("image_delta", reference::RunsOf(reference::ChangedBytes(base, target, 512)))
      .EveryOffset(*delta);
  ASSERT_OK_AND_ASSIGN(
      const auto allocation,
      MakeImageAllocationCursor(target_file->Open(), {.block_size = 512, .skip_zeros = true}));
  const std::vector<uint8_t> zeros(size);
  test::ResumeCheck("image_allocation",
                    reference::RunsOf(reference::ChangedBytes(zeros, target, 512)))
      .EveryOffset(*allocation);
}

// Images of several chunks, runs across chunk borders, blocks larger than a buffer.
TEST(ImageDeltaTest, E7RunsCrossTheBordersOfChunks) {
  test::SeededRandom random(2);
  ThreadPool pool(3);
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const size_t size = 5 * kMiB + random() % 5000;
    std::vector<uint8_t> base(size, 1);
    std::vector<uint8_t> target = base;
    for (int change = 0; change < 4; ++change) {
      const size_t border = (1 + random() % 5) * kMiB;
      const size_t begin = border - random() % kMiB;
      const size_t end = std::min(size, border + random() % (kMiB / 2));
      for (size_t i = begin; i < end; ++i) target[i] = 2;
    }
    for (int change = 0; change < 20; ++change) target[random() % size] ^= 4;
    const MemoryImage base_file(base);
    const MemoryImage target_file(target);
    for (const uint64_t block_size :
         std::initializer_list<uint64_t>{512, 4096, 1 << 18, 1 << 19, 1 << 20, 1 << 23}) {
      const auto set = reference::ChangedBytes(base, target, static_cast<size_t>(block_size));
      const Ranges full = reference::RunsOf(set);
      ASSERT_OK_AND_ASSIGN(auto cursor,
                           MakeImageDeltaCursor(base_file.Open(), target_file.Open(),
                                                {.block_size = block_size, .executor = &pool}));
      EXPECT_EQ(cursor->granularity(), block_size);
      ASSERT_EQ(ValueOf(test::Drain(*cursor)), full) << block_size;
      for (int i = 0; i < 5; ++i) {
        const uint64_t offset = random() % size;
        ASSERT_EQ(ValueOf(test::DrainFrom(*cursor, offset)),
                  CutAtBlock(full, offset, size, block_size))
            << block_size << " from " << offset;
      }
    }
  }
}

TEST(ImageDeltaTest, OptionsOutOfRangeAreRefused) {
  const MemoryImage file(10);
  for (const uint64_t block_size : {uint64_t{0}, uint64_t{256}, uint64_t{1000}, uint64_t{4097},
                                    128 * kMiB, uint64_t{1} << 63}) {
    EXPECT_EQ(
        MakeImageDeltaCursor(file.Open(), file.Open(), {.block_size = block_size}).status().code(),
        StatusCode::kInvalidArgument);
    EXPECT_EQ(MakeImageAllocationCursor(file.Open(), {.block_size = block_size}).status().code(),
              StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(MakeImageDeltaCursor(nullptr, file.Open()).ok());
  EXPECT_FALSE(MakeImageDeltaCursor(file.Open(), nullptr).ok());
  EXPECT_FALSE(MakeImageAllocationCursor(nullptr).ok());
}

TEST(ImageDeltaTest, E11DataThatBecameAHoleIsAChangeAndHolesAreNot) {
  MemoryImage base(kMiB);
  const MemoryImage target(kMiB);
  base.Write(300'000, "written, then discarded");
  ASSERT_OK_AND_ASSIGN(auto cursor, MakeImageDeltaCursor(base.Open(), target.Open()));
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), (Ranges{{299'008, 4096}}));
}

TEST(ImageDeltaTest, E10GrownAndShrunkVolumes) {
  MemoryImage small(10'000);
  MemoryImage large(200 * kGiB);
  large.Write(128 * kGiB, "x");
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(MakeImageDeltaCursor(small.Open(), large.Open())))),
            (Ranges{{128 * kGiB, 4096}}));
  small.Write(9'999, "y");
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(MakeImageDeltaCursor(large.Open(), small.Open())))),
            (Ranges{{8192, 10'000 - 8192}}));
  // An offset that only the target has.
  ASSERT_OK_AND_ASSIGN(auto cursor, MakeImageDeltaCursor(small.Open(), large.Open()));
  EXPECT_EQ(ValueOf(test::DrainFrom(*cursor, 100 * kGiB)), (Ranges{{128 * kGiB, 4096}}));
}

// 16 TiB with data in a few places: time and memory grow with the data, not the size.
TEST(ImageDeltaTest, SkipsTheHolesOfHugeSparseImages) {
  constexpr uint64_t kSize = 16 * kTiB - 4096;
  MemoryImage base(kSize);
  MemoryImage target(kSize);
  test::SeededRandom random(3);
  Ranges want;
  for (uint64_t i = 0; i < 500; ++i) {
    const uint64_t block = i * (kSize / 4096 / 500) + random() % 1000;
    base.Write(block * 4096, "same");
    target.Write(block * 4096, i % 2 == 0 ? "same" : "other");
    if (i % 2 != 0) want.emplace_back(block * 4096, 4096);
  }
  ThreadPool pool(2);
  ASSERT_OK_AND_ASSIGN(auto cursor,
                       MakeImageDeltaCursor(base.Open(), target.Open(), {.executor = &pool}));
  EXPECT_EQ(ValueOf(test::Drain(*cursor, 1000)), want);
  EXPECT_EQ(ValueOf(test::DrainFrom(*cursor, kSize / 2, 1000)).size(), want.size() / 2);
}

TEST(ImageDeltaTest, CoverageMovesThroughQuietRegions) {
  const std::vector<uint8_t> bytes(64 * kMiB, 1);
  const MemoryImage base(bytes);
  const MemoryImage target(bytes);
  ASSERT_OK_AND_ASSIGN(auto cursor, MakeImageDeltaCursor(base.Open(), target.Open()));
  ExtentBatch batch;
  uint64_t covered = 0;
  int calls = 0;
  for (;; ++calls) {
    const auto step = cursor->Next(batch);
    ASSERT_OK(step);
    EXPECT_TRUE(batch.empty());
    if (*step == Step::kComplete) break;
    EXPECT_GT(cursor->covered(), covered);
    covered = cursor->covered();
  }
  EXPECT_GE(calls, 3);
}

// Counts the tasks and runs them.
class CountingExecutor final : public Executor {
 public:
  void Schedule(std::function<void()> task) override {
    ++tasks_;
    task();
  }
  int tasks() const noexcept { return tasks_; }

 private:
  int tasks_ = 0;
};

// Runs the first tasks and holds the others until they are released.
class HoldingExecutor final : public Executor {
 public:
  explicit HoldingExecutor(size_t first) : free_(first) {}
  void Schedule(std::function<void()> task) override {
    if (free_ > 0) {
      --free_;
      task();
    } else {
      held_.push_back(std::move(task));
    }
  }
  void Release() {
    free_ = SIZE_MAX;
    for (const auto& task : std::exchange(held_, {})) task();
  }

 private:
  size_t free_;
  std::vector<std::function<void()>> held_;
};

// The third chunk is delayed. If Next() waited for it, it would wait indefinitely.
TEST(ImageDeltaTest, ASlowChunkHoldsBackNothingThatWasFound) {
  const MemoryImage base(std::vector<uint8_t>(6 * kMiB, 1));
  MemoryImage target(std::vector<uint8_t>(6 * kMiB, 1));
  target.Write(8192, "early");
  target.Write(5 * kMiB, "late");
  HoldingExecutor executor(2);
  ASSERT_OK_AND_ASSIGN(auto cursor,
                       MakeImageDeltaCursor(base.Open(), target.Open(), {.executor = &executor}));
  ExtentBatch batch;
  ASSERT_EQ(ValueOf(cursor->Next(batch)), Step::kMore);
  ASSERT_EQ(batch.size(), 1u);
  EXPECT_EQ(batch[0], (Extent{8192, 4096}));
  // The server can send repeatedly meanwhile.
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(ValueOf(cursor->Next(batch)), Step::kMore);
    EXPECT_TRUE(batch.empty());
    EXPECT_EQ(cursor->covered(), 2 * kMiB);
  }
  executor.Release();
  Ranges rest;
  for (Step step = Step::kMore; step == Step::kMore;) {
    step = ValueOf(cursor->Next(batch));
    for (size_t i = 0; i < batch.size(); ++i) rest.emplace_back(batch[i].offset, batch[i].length);
  }
  EXPECT_EQ(rest, (Ranges{{5 * kMiB, 4096}}));
}

// The same where Next() itself reads.
TEST(ImageDeltaTest, WithoutAnExecutorExtentsAreReturnedBeforeTheNextChunkIsRead) {
  const MemoryImage base(std::vector<uint8_t>(6 * kMiB, 1));
  MemoryImage target(std::vector<uint8_t>(6 * kMiB, 1));
  target.Write(kMiB + 8192, "early");
  target.Write(5 * kMiB, "late");
  ASSERT_OK_AND_ASSIGN(auto cursor, MakeImageDeltaCursor(base.Open(), target.Open()));
  ExtentBatch batch;
  while (batch.empty()) ASSERT_EQ(ValueOf(cursor->Next(batch)), Step::kMore);
  ASSERT_EQ(batch.size(), 1u);
  EXPECT_EQ(batch[0], (Extent{kMiB + 8192, 4096}));
  EXPECT_EQ(cursor->covered(), 2 * kMiB);
}

TEST(ImageDeltaTest, E8SameFileIsReadByNobodyAndHardLinksAreCompared) {
  const test::TempDir dir;
  dir.Write("a", std::string(3 * kMiB, 'x'));
  std::filesystem::create_hard_link(dir / "a", dir / "b");
  for (const bool by_extents : {false, true}) {
    for (const char* other : {"a", "b"}) {
      CountingExecutor executor;
      const ImageOptions options{.executor = &executor};
      ASSERT_OK_AND_ASSIGN(const auto base, Image::Open(dir / "a"));
      ASSERT_OK_AND_ASSIGN(const auto target, Image::Open(dir / other));
      auto cursor = by_extents ? MakeReflinkDeltaCursor(base, target, {.images = options})
                               : MakeImageDeltaCursor(base, target, options);
      ASSERT_OK(cursor);
      EXPECT_EQ(ValueOf(test::Drain(**cursor)), Ranges{});
      if (other[0] == 'a') {
        EXPECT_EQ(executor.tasks(), 0);
      } else if (!by_extents) {
        EXPECT_GE(executor.tasks(), 3);
      }
    }
  }
}

// Truncates, grows or writes one image during the comparison. The cursor must fail, whatever it has
// returned so far, and never complete.
enum class Damage { kShrinkBase, kShrinkTarget, kGrowTarget, kWriteTarget, kWriteBase };

class DamagedImageTest : public testing::TestWithParam<Damage> {};

TEST_P(DamagedImageTest, E14ImageThatChangesWhileItIsReadIsAnError) {
  ThreadPool pool(2);
  for (const bool parallel : {false, true}) {
    for (int after = 0; after < 3; ++after) {
      std::vector<uint8_t> bytes(40 * kMiB, 1);
      MemoryImage base(bytes);
      for (size_t i = 0; i < bytes.size(); i += 8192) bytes[i] = 2;
      MemoryImage target(bytes);
      ASSERT_OK_AND_ASSIGN(auto cursor,
                           MakeImageDeltaCursor(base.Open(), target.Open(),
                                                {.executor = parallel ? &pool : nullptr}));
      ExtentBatch batch;
      for (int i = 0; i < after; ++i) ASSERT_EQ(ValueOf(cursor->Next(batch)), Step::kMore);
      usleep(20'000);  // file time stamps are coarse
      switch (GetParam()) {
        case Damage::kShrinkBase:
          base.Resize(20 * kMiB);
          break;
        case Damage::kShrinkTarget:
          target.Resize(40 * kMiB - 1);
          break;
        case Damage::kGrowTarget:
          target.Resize(40 * kMiB + 1);
          break;
        case Damage::kWriteTarget:
          target.Write(0, "z");
          break;
        case Damage::kWriteBase:
          base.Write(0, "z");
          break;
      }
      const auto rest = test::Drain(*cursor, 1024);
      EXPECT_EQ(rest.status().code(), StatusCode::kAborted) << rest.status();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DamagedImageTest,
                         testing::Values(Damage::kShrinkBase, Damage::kShrinkTarget,
                                         Damage::kGrowTarget, Damage::kWriteTarget,
                                         Damage::kWriteBase));

TEST(ImageAllocationTest, E14ImageThatShrinksIsAnError) {
  MemoryImage file(kMiB);
  file.Write(1000, "x");
  for (const bool skip_zeros : {false, true}) {
    ASSERT_OK_AND_ASSIGN(auto cursor,
                         MakeImageAllocationCursor(file.Open(), {.skip_zeros = skip_zeros}));
    file.Resize(1 << 19);
    EXPECT_EQ(test::Drain(*cursor).status().code(), StatusCode::kAborted);
    file.Resize(kMiB);
  }
}

// A cursor may be destroyed or moved while chunks are in flight.
TEST(ImageDeltaTest, CursorCanBeLeftAtAnyTime) {
  ThreadPool pool(2);
  std::vector<uint8_t> bytes(8 * kMiB, 1);
  const MemoryImage base(bytes);
  bytes.back() = 2;
  const MemoryImage target(bytes);
  for (int i = 0; i < 50; ++i) {
    ASSERT_OK_AND_ASSIGN(auto cursor,
                         MakeImageDeltaCursor(base.Open(), target.Open(),
                                              {.executor = &pool, .chunks_in_flight = 8}));
    ExtentBatch batch(1);
    if (i % 2 == 0) {
      ASSERT_OK(cursor->Next(batch));
    }
    if (i % 3 == 0) {
      EXPECT_EQ(ValueOf(test::DrainFrom(*cursor, 8 * kMiB - 1)), (Ranges{{8 * kMiB - 4096, 4096}}));
    }
  }
}

}  // namespace image_cursor_test
}  // namespace cbt

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>

#include "cbt/memory.h"
#include "tests/support/cursors.h"
#include "tests/support/generators.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/status.h"

namespace cbt {
namespace memory_cursor_test {

using test::ValueOf;

using reference::Ranges;

// The differing blocks, found byte by byte and merged.
Ranges Expected(std::span<const uint8_t> a, std::span<const uint8_t> b, size_t block_size) {
  Ranges extents;
  for (size_t begin = 0; begin < a.size(); begin += block_size) {
    const size_t end = std::min(begin + block_size, a.size());
    bool differs = false;
    for (size_t i = begin; i < end; ++i) differs = differs || a[i] != b[i];
    if (!differs) continue;
    if (!extents.empty() && extents.back().first + extents.back().second == begin) {
      extents.back().second += end - begin;
    } else {
      extents.emplace_back(begin, end - begin);
    }
  }
  return extents;
}

TEST(MemoryCursorTest, RefusesWhatItCannotCompare) {
  const uint8_t bytes[1024] = {};
  MemoryOptions options;
  EXPECT_OK(MakeBorrowedMemoryDeltaCursor(bytes, bytes));
  EXPECT_FALSE(MakeBorrowedMemoryDeltaCursor({bytes, 1023}, bytes).ok());
  EXPECT_FALSE(MakeBorrowedMemoryDeltaCursor(bytes, {bytes, 1023}).ok());
  for (const uint64_t block_size : {uint64_t{0}, uint64_t{511}, kMaxMemoryBlockSize + 1}) {
    options.block_size = block_size;
    EXPECT_FALSE(MakeBorrowedMemoryDeltaCursor(bytes, bytes, options).ok());
    EXPECT_FALSE(MakeBorrowedMemoryAllocationCursor(bytes, options).ok());
  }
  for (const uint64_t block_size : {kMinMemoryBlockSize, kMaxMemoryBlockSize}) {
    options.block_size = block_size;
    EXPECT_OK(MakeBorrowedMemoryDeltaCursor(bytes, bytes, options));
    EXPECT_OK(MakeBorrowedMemoryAllocationCursor(bytes, options));
  }
}

TEST(MemoryCursorTest, E8NothingHasNoExtents) {
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(MakeBorrowedMemoryDeltaCursor({}, {})))), Ranges{});
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(MakeBorrowedMemoryAllocationCursor({})))), Ranges{});
}

// Every byte of a block counts, in a partial last block too. No byte past the end is read.
TEST(MemoryCursorTest, FindsEverySingleByte) {
  constexpr size_t kBytes = 2 * 520 + 77;
  const test::GuardedMemory base(kBytes);
  const test::GuardedMemory target(kBytes);
  MemoryOptions options;
  options.block_size = 520;
  for (size_t i = 0; i < kBytes; ++i) {
    target.data()[i] = 1;
    const uint64_t begin = i / 520 * 520;
    const Ranges want = {{begin, std::min<uint64_t>(520, kBytes - begin)}};
    const std::span<const uint8_t> changed(target.data(), kBytes);
    ASSERT_EQ(ValueOf(test::Drain(*ValueOf(
                  MakeBorrowedMemoryDeltaCursor({base.data(), kBytes}, changed, options)))),
              want);
    ASSERT_EQ(ValueOf(test::Drain(*ValueOf(MakeBorrowedMemoryAllocationCursor(changed, options)))),
              want);
    target.data()[i] = 0;
  }
}

// Pieces come from what was compared already, not from what waits for the next batch.
TEST(MemoryCursorTest, PiecesHoldTheSameBlocksInBatchesOfAnySize) {
  constexpr size_t kBlocks = 300;
  std::vector<uint8_t> target(kBlocks * 512, 0);
  for (size_t block = 0; block < kBlocks; ++block) {
    if (block % 7 < 4) target[block * 512] = 1;
  }
  for (const size_t batch : {size_t{1}, size_t{2}, size_t{3}, size_t{1000}}) {
    ASSERT_OK_AND_ASSIGN(const auto cursor,
                         MakeBorrowedMemoryAllocationCursor(target, {.block_size = 512}));
    cursor->AllowPieces();
    std::vector<bool> reported(kBlocks);
    ASSERT_OK_AND_ASSIGN(const Ranges pieces, test::Drain(*cursor, batch));
    for (const auto& [offset, length] : pieces) {
      for (uint64_t at = offset; at < offset + length; at += 512) {
        EXPECT_FALSE(reported[at / 512]);
        reported[at / 512] = true;
      }
    }
    for (size_t block = 0; block < kBlocks; ++block) {
      EXPECT_EQ(reported[block], block % 7 < 4) << block << " in batches of " << batch;
    }
  }
}

// Parts have 4 MiB or 64 blocks, whichever is more.
class LargeMemoryTest : public testing::Test {
 protected:
  LargeMemoryTest() {
    for (uint64_t at = 77; at < base_.size(); at += at % 3 == 0 ? 5 : 400'123) {
      target_[at] = 1;
      changed_.push_back(at);
    }
  }

  Ranges Expected(uint64_t block_size) const {
    Ranges extents;
    for (const uint64_t at : changed_) {
      const uint64_t begin = at / block_size * block_size;
      const uint64_t end = std::min<uint64_t>(begin + block_size, base_.size());
      if (!extents.empty() && extents.back().first + extents.back().second >= begin) {
        extents.back().second = end - extents.back().first;
      } else {
        extents.emplace_back(begin, end - begin);
      }
    }
    return extents;
  }

  const std::vector<uint8_t> base_ = std::vector<uint8_t>(41'943'040 + 999);
  std::vector<uint8_t> target_ = base_;
  std::vector<uint64_t> changed_;
};

TEST_F(LargeMemoryTest, PartsOfSeveralThreadsMakeOneStream) {
  ThreadPool pool(2);
  for (const uint64_t block_size : {uint64_t{4096}, uint64_t{65'536}, kMiB}) {
    const MemoryOptions options{.block_size = block_size, .executor = &pool, .parallel = 2};
    const auto cursor = ValueOf(MakeBorrowedMemoryDeltaCursor(base_, target_, options));
    EXPECT_EQ(ValueOf(test::Drain(*cursor, 16)), Expected(block_size)) << block_size;
    const auto allocated = ValueOf(MakeBorrowedMemoryAllocationCursor(target_, options));
    EXPECT_EQ(ValueOf(test::Drain(*allocated, 1024)), Expected(block_size)) << block_size;
  }
}

TEST_F(LargeMemoryTest, WithoutAnExecutorOneThreadDoesTheWork) {
  const auto cursor =
      ValueOf(MakeBorrowedMemoryDeltaCursor(base_, target_, {.block_size = 4096, .parallel = 4}));
  EXPECT_EQ(ValueOf(test::Drain(*cursor, 16)), Expected(4096));
}

RC_GTEST_PROP(MemoryCursorProperty, MatchesByteByByteFromEveryOffset, ()) {
  static ThreadPool pool(2);
  std::mt19937_64 random = test::AnyRandom();
  const auto block_size = *rc::gen::element<size_t>(512, 513, 1024, 4096, 5000);
  const auto bytes = test::Between<size_t>(1, 700 * 512);
  const auto batch = *rc::gen::element<size_t>(1, 3, 64, 1024);
  std::vector<uint8_t> base(bytes, 0);
  std::vector<uint8_t> target(bytes, 0);
  bool changed = false;
  for (size_t i = 0; i < bytes; i += 1 + random() % 600) {
    if (random() % 10 == 0) changed = !changed;
    if (changed) target[i] = static_cast<uint8_t>(random());
    if (random() % 50 == 0) base[i] = static_cast<uint8_t>(random());
  }
  MemoryOptions options;
  options.block_size = block_size;
  options.executor = &pool;
  options.parallel = test::Between<size_t>(1, 4);
  const std::vector<uint8_t> zeros(bytes, 0);
  for (const bool delta : {true, false}) {
    const Ranges want = Expected(delta ? base : zeros, target, block_size);
    auto cursor = delta ? ValueOf(MakeBorrowedMemoryDeltaCursor(base, target, options))
                        : ValueOf(MakeBorrowedMemoryAllocationCursor(target, options));
    RC_ASSERT(ValueOf(test::Drain(*cursor, batch)) == want);
    for (int i = 0; i < 10; ++i) {
      const uint64_t offset = random() % (bytes + 1);
      const uint64_t at = offset == bytes ? bytes : offset / block_size * block_size;
      RC_ASSERT(ValueOf(test::DrainFrom(*cursor, offset, batch)) == reference::CutAt(want, at));
    }
  }
}

}  // namespace memory_cursor_test
}  // namespace cbt

// Cursors that report extents in pieces, and the blocks made of them.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "cbt/bitmap.h"
#include "cbt/memory.h"
#include "cbt/transform.h"
#include "cbt/units.h"
#include "tests/reference/volume.h"
#include "tests/support/cursors.h"
#include "tests/support/generators.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace pieces_test {

using reference::Ranges;

// Reports the runs of a set in pieces of up to `most` bytes, a few per call. The coverage may end
// anywhere.
class PieceyCursor final : public ExtentCursor {
 public:
  PieceyCursor(const reference::ByteSet& set, uint64_t most, uint64_t granularity, uint64_t seed)
      : ExtentCursor({.capacity = set.size(), .granularity = granularity}),
        set_(set),
        most_(most),
        random_(seed) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    at_ = offset;
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    for (uint64_t calls = random_() % 4; calls > 0 && at_ < capacity() && !batch.full(); --calls) {
      const bool changed = set_[at_];
      uint64_t end = at_;
      while (end < capacity() && set_[end] == changed && end - at_ < most_) ++end;
      if (changed) batch.push_back({at_, end - at_});
      at_ = end;
    }
    return at_;
  }

  const reference::ByteSet set_;
  const uint64_t most_;
  std::mt19937_64 random_;
  uint64_t at_ = 0;
};

RC_GTEST_PROP(Pieces, MakeTheSameBlocksFromEveryOffset, ()) {
  std::mt19937_64 random = AnyRandom();
  const size_t capacity = Between<size_t>(1, 800);
  const uint64_t block = random() % 2 == 0 ? 1 + random() % 60 : uint64_t{1} << (random() % 7);
  const size_t density = Between<size_t>(1, 40);
  reference::ByteSet set = RunsAndGaps(random, capacity, density, 16);
  // Byte-sized pieces, or whole blocks of a source that knows its block size.
  const uint64_t unit = random() % 2 == 0 ? 1 : block;
  if (unit != 1) {
    for (size_t i = 0; i < capacity; i += unit) {
      std::fill(set.begin() + static_cast<ptrdiff_t>(i),
                set.begin() + static_cast<ptrdiff_t>(std::min(i + unit, capacity)), set[i]);
    }
  }
  const Ranges full = reference::BlocksOf(set, block);
  auto cursor = ToBlocks(
      std::make_unique<PieceyCursor>(set, unit * (1 + random() % 50), unit, random()), block);
  RequireOk(cursor);
  for (uint64_t offset = 0; offset < capacity; offset += 1 + random() % 5) {
    RequireOk((*cursor)->Seek(offset));
    const auto rest = Drain(**cursor);
    if (!rest.ok()) RC_FAIL(rest.status().ToString());
    Ranges expected;
    for (const auto& [at, length] : full) {
      if (at >= offset / block * block) expected.emplace_back(at, length);
    }
    RC_ASSERT(*rest == expected);
  }
}

// A volume that changed everywhere is reported from its first block on, not only after the whole
// bitmap was scanned.
TEST(Pieces, BlocksOfABitmapDontWaitForTheEndOfARun) {
  const std::vector<uint8_t> ones(40 * kMiB, 0xff);
  const uint64_t bits = ones.size() * 8;
  const uint64_t capacity = bits * 4096;
  const auto open = [&] {
    return ValueOf(MakeBorrowedBitmapCursor(ValueOf(BitmapView::Create(ones, 0, bits)),
                                            {.capacity = capacity, .granularity = 4096}));
  };
  ExtentBatch batch;
  auto extents = open();
  ASSERT_OK(extents->Next(batch));
  EXPECT_TRUE(batch.empty());  // its only extent has not ended yet
  ASSERT_OK_AND_ASSIGN(auto blocks, ToBlocks(open(), 65536));
  ASSERT_OK(blocks->Next(batch));
  EXPECT_TRUE(batch.full());
  // Every block once.
  ASSERT_OK(blocks->Seek(0));
  uint64_t next = 0;
  const absl::Status status = ForEachBatch(*blocks, [&](const ExtentBatch& got) {
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i].offset != next || got[i].length != 65536) return absl::InternalError("a gap");
      next += 65536;
    }
    return absl::OkStatus();
  });
  EXPECT_OK(status);
  EXPECT_EQ(next, capacity);
}

TEST(Pieces, BlocksOfMemoryDontWaitForTheEndOfARun) {
  const std::vector<uint8_t> zeros(64 * kMiB, 0);
  const std::vector<uint8_t> ones(zeros.size(), 1);
  ASSERT_OK_AND_ASSIGN(auto blocks,
                       ToBlocks(ValueOf(MakeBorrowedMemoryDeltaCursor(zeros, ones)), 8192));
  ExtentBatch batch;
  ASSERT_OK(blocks->Next(batch));
  EXPECT_TRUE(batch.full());
  uint64_t count = 0;
  ASSERT_OK(blocks->Seek(0));
  ASSERT_OK(ForEachBatch(*blocks, [&](const ExtentBatch& got) {
    count += got.size();
    return absl::OkStatus();
  }));
  EXPECT_EQ(count, zeros.size() / 8192);
}

// Batches so small that they fill up in the middle of a compared chunk.
TEST(Pieces, OfMemoryInBatchesOfAFewExtents) {
  constexpr size_t kBlock = 512;
  constexpr size_t kBlocks = 300;
  test::SeededRandom random(1);
  for (const uint64_t one_in : {uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{40}}) {
    const std::vector<uint8_t> base(kBlock * kBlocks, 0);
    std::vector<uint8_t> target = base;
    reference::ByteSet changed(target.size());
    for (size_t block = 0; block < kBlocks; ++block) {
      // Every second block, or random blocks.
      if (one_in == 2 ? block % 2 == 0 : random() % one_in == 0) {
        target[block * kBlock + random() % kBlock] = 1;
        std::fill_n(changed.begin() + static_cast<ptrdiff_t>(block * kBlock), kBlock, true);
      }
    }
    for (const size_t room : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{64}}) {
      ASSERT_OK_AND_ASSIGN(auto cursor,
                           MakeBorrowedMemoryDeltaCursor(base, target, {.block_size = kBlock}));
      cursor->AllowPieces();
      reference::ByteSet reported(target.size());
      uint64_t end = 0;
      ExtentBatch batch(room);
      absl::StatusOr<Step> step = Step::kMore;
      while (step.ok() && *step == Step::kMore) {
        step = cursor->Next(batch);
        ASSERT_OK(step);
        for (size_t i = 0; i < batch.size(); ++i) {
          ASSERT_GE(batch[i].offset, end);
          end = batch[i].end();
          std::fill(reported.begin() + static_cast<ptrdiff_t>(batch[i].offset),
                    reported.begin() + static_cast<ptrdiff_t>(end), true);
        }
        // Nothing below `covered` may follow.
        const auto covered = static_cast<ptrdiff_t>(cursor->covered());
        ASSERT_TRUE(std::equal(reported.begin(), reported.begin() + covered, changed.begin()))
            << "below " << covered << ", 1 in " << one_in << ", batches of " << room;
      }
      EXPECT_EQ(reported, changed) << "1 in " << one_in << ", batches of " << room;
    }
  }
}

}  // namespace pieces_test
}  // namespace cbt::test

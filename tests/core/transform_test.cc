#include "cbt/transform.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

#include "cbt/units.h"
#include "tests/support/cursors.h"
#include "tests/support/generators.h"
#include "tests/support/status.h"

namespace cbt {
namespace transform_test {

using test::ValueOf;

using reference::ByteSet;
using reference::Ranges;

TEST(TransformTest, RefusesParametersThatMakeNoSense) {
  const auto input = [] { return test::CursorOver({{0, 8}}, 100, 4); };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(Coalesce(nullptr).status().code(), invalid);
  EXPECT_EQ(Split(nullptr, 4).status().code(), invalid);
  EXPECT_EQ(Split(input(), 0).status().code(), invalid);
  EXPECT_EQ(Split(input(), 6).status().code(), invalid);
  EXPECT_EQ(Split(input(), UINT64_MAX).status().code(), invalid);
  EXPECT_EQ(AlignOutward(nullptr, 4).status().code(), invalid);
  EXPECT_EQ(AlignOutward(input(), 0).status().code(), invalid);
  EXPECT_EQ(AlignOutward(input(), kMaxGranularity + 1).status().code(), invalid);
  EXPECT_EQ(Clip(nullptr, 0, 0).status().code(), invalid);
  EXPECT_EQ(Clip(input(), 5, 4).status().code(), invalid);
  EXPECT_EQ(Clip(input(), 0, 101).status().code(), invalid);
  EXPECT_EQ(ToBlocks(nullptr, 4).status().code(), invalid);
  EXPECT_EQ(ToBlocks(input(), 0).status().code(), invalid);
}

TEST(TransformTest, E4LastBlockKeepsItsSizeAndReachesPastTheCapacity) {
  ASSERT_OK_AND_ASSIGN(auto cursor, ToBlocks(test::CursorOver({{8, 2}}, 10), 4));
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), (Ranges{{8, 4}}));
  EXPECT_EQ(cursor->covered(), 10u);
}

// The blocks of `size` bytes that contain a byte of `set`.
Ranges BlocksThatHold(const ByteSet& set, uint64_t size) {
  Ranges blocks;
  for (size_t i = 0; i < set.size(); ++i) {
    const uint64_t at = i / size * size;
    if (set[i] && (blocks.empty() || blocks.back().first != at)) blocks.emplace_back(at, size);
  }
  return blocks;
}

// Blocks that fill whole batches exactly, the last one partial, cut into blocks again.
TEST(TransformTest, E4LastBlockMayFillABatch) {
  constexpr uint64_t kBlock = 8;
  constexpr uint64_t kBatch = ExtentBatch::kDefaultCapacity;
  const auto check = [](uint64_t count, uint64_t rest, uint64_t every) {
    const uint64_t capacity = (count - 1) * kBlock + rest;
    ByteSet set(capacity);
    for (size_t i = 0; i < set.size(); ++i) set[i] = (count - 1 - i / kBlock) % every == 0;
    for (const uint64_t first : {2u, 4u, 8u, 6u}) {
      const Ranges once = BlocksThatHold(set, first);
      for (const uint64_t second : {2u, 4u, 8u, 16u, 6u}) {
        const Ranges want = BlocksThatHold(reference::BytesOf(once, capacity), second);
        auto cursor = ValueOf(ToBlocks(
            ValueOf(ToBlocks(test::CursorOver(reference::RunsOf(set), capacity), first)), second));
        const auto found = test::Drain(*cursor, kBatch);
        ASSERT_OK(found) << first << " to " << second << ": " << found.status();
        ASSERT_TRUE(*found == want) << first << " to " << second;
        // Starts at an offset from which one batch fills exactly at the end.
        const uint64_t from = want.size() > kBatch ? want[want.size() - kBatch].first : 0;
        const auto last = test::DrainFrom(*cursor, from, kBatch);
        ASSERT_OK(last) << first << " to " << second << ": " << last.status();
        ASSERT_TRUE(*last == reference::CutAt(want, from)) << first << " to " << second;
      }
    }
  };
  for (const uint64_t whole : {kBatch / 4, kBatch, 2 * kBatch}) {
    for (uint64_t count = whole - 2; count <= whole + 2; ++count) {
      for (const uint64_t rest : {1u, 3u, 7u, 8u}) {
        for (const uint64_t every : {1u, 2u}) {
          SCOPED_TRACE(testing::Message() << count << " blocks, the last one of " << rest
                                          << " bytes, changed one of " << every);
          check(count, rest, every);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(TransformTest, E7BlocksThatCannotBeToldOnTheWireAreRefused) {
  auto refused = ToBlocks(test::CursorOver({}, kMaxCapacity), 4096);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  // One that ends there does not.
  EXPECT_OK(ToBlocks(test::CursorOver({}, kMaxCapacity), 1));
  const uint64_t capacity = kMaxCapacity - 4095;
  ASSERT_OK_AND_ASSIGN(auto cursor,
                       ToBlocks(test::CursorOver({{capacity - 1, 1}}, capacity), 4096));
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), (Ranges{{capacity - 4096, 4096}}));
}

TEST(TransformTest, E7ArithmeticHoldsAtTheEdgeOfTheOffsets) {
  const Ranges ends = {{0, 1}, {kMaxCapacity - 1, 1}};
  EXPECT_EQ(
      ValueOf(test::Drain(*ValueOf(Coalesce(test::CursorOver(ends, kMaxCapacity), UINT64_MAX)))),
      (Ranges{{0, kMaxCapacity}}));
  EXPECT_EQ(ValueOf(test::Drain(
                *ValueOf(AlignOutward(test::CursorOver(ends, kMaxCapacity), kMaxGranularity)))),
            (Ranges{{0, kMaxCapacity}}));
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(
                Split(test::CursorOver({{0, kMaxCapacity}}, kMaxCapacity), uint64_t{1} << 62)))),
            (Ranges{{0, uint64_t{1} << 62}, {uint64_t{1} << 62, (uint64_t{1} << 62) - 1}}));
}

TEST(TransformTest, E16CoarserBlocksAreRoundedOutwardAndMerged) {
  const uint64_t mib = kMiB;
  ASSERT_OK_AND_ASSIGN(
      auto cursor,
      AlignOutward(
          test::CursorOver({{4096, 4096}, {mib - 4096, 8192}, {5 * mib, 4096}}, 5 * mib + 10'000),
          mib));
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), (Ranges{{0, 2 * mib}, {5 * mib, 10'000}}));
}

// Found by a property: the transform was at 0 and its input was not, so it completed without the
// extents that the input had already returned.
TEST(TransformTest, InputThatWasReadBeforeIsTakenBackToItsBeginning) {
  const Ranges ranges = {{0, 8}, {16, 4}, {40, 20}};
  for (int factory = 0; factory < 5; ++factory) {
    auto input = test::CursorOver(ranges, 100, 4);
    ExtentBatch batch(2);
    ASSERT_OK(input->Next(batch));
    auto cursor = factory == 0   ? Coalesce(std::move(input))
                  : factory == 1 ? Split(std::move(input), 100)
                  : factory == 2 ? AlignOutward(std::move(input), 4)
                  : factory == 3 ? Clip(std::move(input), 0, 100)
                                 : ToBlocks(std::move(input), 4);
    EXPECT_EQ(reference::BytesOf(ValueOf(test::Drain(**cursor)), 100),
              reference::BytesOf(ranges, 100));
  }
}

// If the input fails after some batches, the transform must fail too and never look complete.
class FailingCursor final : public ExtentCursor {
 public:
  explicit FailingCursor(uint64_t good)
      : ExtentCursor({.capacity = 1000, .granularity = 1}), good_(good) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    at_ = offset;
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (at_ >= good_) return absl::DataLossError("bad page");
    batch.push_back({at_, 1});
    at_ += 10;
    return at_;
  }
  const uint64_t good_;
  uint64_t at_ = 0;
};

TEST(TransformTest, E14ErrorOfTheInputIsTheErrorOfEveryTransform) {
  using Make =
      std::function<absl::StatusOr<std::unique_ptr<ExtentCursor>>(std::unique_ptr<ExtentCursor>)>;
  const Make makers[] = {
      [](auto input) { return Coalesce(std::move(input), 3); },
      [](auto input) { return Coalesce(std::move(input), 500); },
      [](auto input) { return Split(std::move(input), 1); },
      [](auto input) { return AlignOutward(std::move(input), 64); },
      [](auto input) { return Clip(std::move(input), 5, 995); },
      [](auto input) { return ToBlocks(std::move(input), 4); },
  };
  for (const Make& make : makers) {
    for (uint64_t good = 0; good <= 900; good += 90) {
      auto cursor = ValueOf(make(std::make_unique<FailingCursor>(good)));
      EXPECT_EQ(test::Drain(*cursor).status().code(), absl::StatusCode::kDataLoss);
      ExtentBatch batch;
      EXPECT_EQ(cursor->Next(batch).status().code(), absl::StatusCode::kDataLoss);
    }
  }
  // A window that ends before the damage is unaffected.
  ASSERT_OK_AND_ASSIGN(auto window, Clip(std::make_unique<FailingCursor>(500), 0, 200));
  EXPECT_OK(test::Drain(*window));
}

// Each call returns one extent, and covers up to where the next one begins.
class OneByOneCursor final : public ExtentCursor {
 public:
  explicit OneByOneCursor(std::vector<Extent> extents)
      : ExtentCursor({.capacity = 1000, .granularity = 1}), extents_(std::move(extents)) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    next_ = 0;
    while (next_ < extents_.size() && extents_[next_].end() <= offset) ++next_;
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (next_ < extents_.size()) batch.push_back(extents_[next_++]);
    return next_ < extents_.size() ? extents_[next_].offset : capacity();
  }
  const std::vector<Extent> extents_;
  size_t next_ = 0;
};

TEST(TransformTest, AGapOfTheGreatestSizeIsBridgedBetweenBatchesToo) {
  for (const uint64_t gap : {0u, 1u, 4u, 5u}) {
    const auto cursor = ValueOf(
        Coalesce(std::make_unique<OneByOneCursor>(std::vector<Extent>{{10, 10}, {24, 6}}), gap));
    EXPECT_EQ(ValueOf(test::Drain(*cursor)),
              gap < 4 ? (Ranges{{10, 10}, {24, 6}}) : (Ranges{{10, 20}}))
        << gap;
  }
}

ByteSet Clustered(size_t count, uint64_t unit, std::mt19937_64& random) {
  ByteSet set(count);
  bool value = false;
  for (size_t i = 0; i < count; ++i) {
    if (i % unit == 0 && random() % 3 == 0) value = !value;
    set[i] = value;
  }
  return set;
}

// Drains `cursor` from every offset and compares with the full answer cut there.
void CheckEveryOffset(ExtentCursor& cursor, const Ranges& full, uint64_t granularity,
                      size_t batch) {
  RC_ASSERT(ValueOf(test::Drain(cursor, batch)) == full);
  for (uint64_t offset = 0; offset <= cursor.capacity(); ++offset) {
    const uint64_t position =
        offset == cursor.capacity() ? offset : offset / granularity * granularity;
    const auto got = test::DrainFrom(cursor, offset, batch);
    test::RequireOk(got);
    RC_ASSERT(*got ==
              (position == cursor.capacity() ? Ranges{} : reference::CutAt(full, position)));
  }
}

class TransformProperty : public testing::Test {};

struct Input {
  ByteSet set;
  uint64_t granularity;
  size_t batch;
  std::unique_ptr<ExtentCursor> Cursor() const {
    return test::CursorOver(reference::RunsOf(set), set.size(), granularity);
  }
};

Input AnyInput() {
  std::mt19937_64 random = test::AnyRandom();
  const auto size = test::Between<size_t>(0, 150);
  const auto granularity = *rc::gen::element<uint64_t>(1, 2, 3, 8);
  return {Clustered(size, granularity, random), granularity, test::Between<size_t>(1, 9)};
}

RC_GTEST_FIXTURE_PROP(TransformProperty, CoalesceBridgesGapsFromEveryOffset, ()) {
  const Input input = AnyInput();
  const auto gap = test::Between<uint64_t>(0, 30);
  auto cursor = ValueOf(Coalesce(input.Cursor(), gap));
  CheckEveryOffset(*cursor, reference::RunsOf(reference::Bridged(input.set, gap)),
                   input.granularity, input.batch);
}

RC_GTEST_FIXTURE_PROP(TransformProperty, AlignRoundsOutwardFromEveryOffset, ()) {
  const Input input = AnyInput();
  const auto granularity = test::Between<size_t>(1, 40);
  auto cursor = ValueOf(AlignOutward(input.Cursor(), granularity));
  CheckEveryOffset(*cursor, reference::RunsOf(reference::RoundedOutward(input.set, granularity)),
                   granularity, input.batch);
}

RC_GTEST_FIXTURE_PROP(TransformProperty, ClipKeepsTheWindowFromEveryOffset, ()) {
  const Input input = AnyInput();
  const auto begin = test::Between<uint64_t>(0, input.set.size() + 1);
  const auto end = test::Between<uint64_t>(begin, input.set.size() + 1);
  auto cursor = ValueOf(Clip(input.Cursor(), begin, end));
  CheckEveryOffset(*cursor, reference::RunsOf(reference::Window(input.set, begin, end)),
                   input.granularity, input.batch);
}

RC_GTEST_FIXTURE_PROP(TransformProperty, BlocksAreWholeFromEveryOffset, ()) {
  const Input input = AnyInput();
  const auto block = test::Between<size_t>(1, 40);
  auto cursor = ValueOf(ToBlocks(input.Cursor(), block));
  CheckEveryOffset(*cursor, reference::BlocksOf(input.set, block), block, input.batch);
}

RC_GTEST_FIXTURE_PROP(TransformProperty, SplitCutsWithoutLosingAByte, ()) {
  const Input input = AnyInput();
  const uint64_t length = input.granularity * test::Between<uint64_t>(1, 12);
  auto cursor = ValueOf(Split(input.Cursor(), length));
  const Ranges full = reference::PiecesOf(reference::RunsOf(input.set), length);
  RC_ASSERT(ValueOf(test::Drain(*cursor, input.batch)) == full);
  // Resuming after any piece returns the remaining pieces.
  Ranges rest = full;
  for (const auto& [offset, size] : full) {
    rest.erase(rest.begin());
    RC_ASSERT(ValueOf(test::DrainFrom(*cursor, offset + size, input.batch)) == rest);
  }
}

// Stacked transforms with random seeks in between, compared with byte sets.
RC_GTEST_FIXTURE_PROP(TransformProperty, ChainsUnderRandomSeeksMatchTheOracle, ()) {
  const Input input = AnyInput();
  ByteSet set = input.set;
  auto cursor = input.Cursor();
  for (int stages = test::Between<int>(0, 5); stages > 0; --stages) {
    switch (test::Between<int>(0, 3)) {
      case 0: {
        const auto gap = test::Between<uint64_t>(0, 20);
        cursor = ValueOf(Coalesce(std::move(cursor), gap));
        set = reference::Bridged(set, gap);
        break;
      }
      case 1: {
        const auto granularity = test::Between<size_t>(1, 20);
        cursor = ValueOf(AlignOutward(std::move(cursor), granularity));
        set = reference::RoundedOutward(set, granularity);
        break;
      }
      default: {
        const auto begin = test::Between<uint64_t>(0, set.size() + 1);
        const auto end = test::Between<uint64_t>(begin, set.size() + 1);
        cursor = ValueOf(Clip(std::move(cursor), begin, end));
        set = reference::Window(set, begin, end);
        break;
      }
    }
  }
  cursor = ValueOf(Coalesce(std::move(cursor)));
  const Ranges full = reference::RunsOf(set);
  const uint64_t granularity = cursor->granularity();
  for (int i = 0; i < 20; ++i) {
    const auto offset = test::Between<uint64_t>(0, set.size() + 1);
    test::RequireOk(cursor->Seek(offset));
    // Sometimes abandon it halfway.
    if (*rc::gen::arbitrary<bool>()) {
      ExtentBatch batch(input.batch);
      test::RequireOk(cursor->Next(batch));
      continue;
    }
    const uint64_t position = offset == set.size() ? offset : offset / granularity * granularity;
    RC_ASSERT(ValueOf(test::Drain(*cursor, input.batch)) == reference::CutAt(full, position));
  }
}

}  // namespace transform_test
}  // namespace cbt

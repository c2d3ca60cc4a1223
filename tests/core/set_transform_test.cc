#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>
#include <tuple>

#include "cbt/transform.h"
#include "cbt/units.h"
#include "tests/support/cursors.h"
#include "tests/support/generators.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace set_transform_test {

using test::ValueOf;

using reference::ByteSet;
using reference::Ranges;
using Cursors = std::vector<std::unique_ptr<ExtentCursor>>;

// Whole-block extents, some of them adjacent.
Ranges AnyRanges(std::mt19937_64& random, uint64_t capacity, uint64_t granularity) {
  Ranges ranges;
  const uint64_t blocks = BlockCount(capacity, granularity);
  const uint64_t spread = 1 + random() % 30;
  for (uint64_t at = random() % spread; at < blocks;) {
    const uint64_t end = std::min(at + 1 + random() % spread, blocks);
    ranges.emplace_back(at * granularity, std::min(end * granularity, capacity) - at * granularity);
    at = end + (random() % 3 == 0 ? 0 : random() % spread);
  }
  return ranges;
}

// Returns at most `pace` extents per call, sometimes none, so that inputs are read at different
// speeds.
class SlowCursor final : public ExtentCursor {
 public:
  SlowCursor(Ranges ranges, uint64_t capacity, uint64_t granularity, size_t pace) noexcept
      : ExtentCursor({.capacity = capacity, .granularity = granularity}),
        ranges_(std::move(ranges)),
        pace_(pace) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    start_ = offset;
    next_ = 0;
    while (next_ < ranges_.size() && ranges_[next_].first + ranges_[next_].second <= offset) {
      ++next_;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (++calls_ % 3 == 0) return covered();
    for (size_t i = 0; i < pace_ && next_ < ranges_.size() && !batch.full(); ++i, ++next_) {
      const auto& [offset, length] = ranges_[next_];
      const uint64_t begin = std::max(offset, start_);
      batch.push_back({begin, offset + length - begin});
    }
    if (next_ == ranges_.size()) return capacity();
    return batch.empty() ? covered() : batch.back().end();
  }

  const Ranges ranges_;
  const size_t pace_;
  size_t next_ = 0;
  uint64_t start_ = 0;
  int calls_ = 0;
};

// A consumer that cuts blocks out of the result needs the granularity.
TEST(SetTransformTest, TheGranularityIsWhatAllInputsShare) {
  const auto in = [](uint64_t granularity) {
    return ValueOf(AlignOutward(test::CursorOver({}, kMiB), granularity));
  };
  for (const auto& [a, b, both] : {std::tuple{4096u, 4096u, 4096u},
                                   {4096u, 512u, 512u},
                                   {1u, 4096u, 1u},
                                   {12288u, 8192u, 4096u}}) {
    Cursors inputs;
    inputs.push_back(in(a));
    inputs.push_back(in(b));
    EXPECT_EQ(ValueOf(Union(std::move(inputs)))->granularity(), both);
    EXPECT_EQ(ValueOf(Intersect(in(a), in(b)))->granularity(), both);
    EXPECT_EQ(ValueOf(Subtract(in(a), in(b)))->granularity(), both);
  }
}

TEST(SetTransformTest, RefusesWhatDoesNotFitTogether) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(Union(Cursors{}).status().code(), invalid);
  Cursors none;
  none.push_back(nullptr);
  EXPECT_EQ(Union(std::move(none)).status().code(), invalid);
  EXPECT_EQ(Intersect(test::CursorOver({}, 8), nullptr).status().code(), invalid);
  EXPECT_EQ(Subtract(nullptr, test::CursorOver({}, 8)).status().code(), invalid);
  const absl::Status status = Intersect(test::CursorOver({}, 8), test::CursorOver({}, 9)).status();
  EXPECT_EQ(status.code(), invalid);
  EXPECT_NE(status.message().find("8 and 9"), std::string::npos) << status;
}

TEST(SetTransformTest, E7ArithmeticHoldsAtTheEdgeOfTheOffsets) {
  const auto low = [] { return test::CursorOver({{0, 1}, {10, kMaxCapacity - 10}}, kMaxCapacity); };
  const auto high = [] { return test::CursorOver({{5, 5}, {kMaxCapacity - 1, 1}}, kMaxCapacity); };
  Cursors both;
  both.push_back(low());
  both.push_back(high());
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(Union(std::move(both))))),
            (Ranges{{0, 1}, {5, kMaxCapacity - 5}}));
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(Intersect(low(), high())))),
            (Ranges{{kMaxCapacity - 1, 1}}));
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(Subtract(low(), high())))),
            (Ranges{{0, 1}, {10, kMaxCapacity - 11}}));
}

TEST(SetTransformTest, E4LastBlockOfAnInputIsCutAtTheCapacity) {
  const auto blocks = [] { return ValueOf(ToBlocks(test::CursorOver({{0, 1}, {9, 1}}, 10), 4)); };
  Cursors both;
  both.push_back(blocks());
  both.push_back(test::CursorOver({{4, 4}}, 10));
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(Union(std::move(both))))), (Ranges{{0, 10}}));
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(Subtract(test::CursorOver({{0, 10}}, 10), blocks())))),
            (Ranges{{4, 4}}));
}

// Fails after some batches.
class FailingCursor final : public ExtentCursor {
 public:
  explicit FailingCursor(uint64_t capacity) noexcept
      : ExtentCursor({.capacity = capacity, .granularity = 1}) {}

 private:
  absl::Status DoSeek(uint64_t) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (covered() >= 50) return absl::UnavailableError("gone");
    batch.push_back({covered(), 10});
    return covered() + 10;
  }
};

TEST(SetTransformTest, ErrorOfAnyInputPassesAndNothingComplete) {
  for (int place = 0; place < 3; ++place) {
    Cursors inputs;
    for (int i = 0; i < 3; ++i) {
      if (i == place) {
        inputs.push_back(std::make_unique<FailingCursor>(100));
      } else {
        inputs.push_back(test::CursorOver({{0, 100}}, 100));
      }
    }
    ASSERT_OK_AND_ASSIGN(auto cursor, Union(std::move(inputs)));
    EXPECT_EQ(test::Drain(*cursor).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_LE(cursor->covered(), 50u);
  }
}

// Has changes at 0 and at 1 MiB. Knows about 64 KiB at a time, and says less.
class CoarseCursor final : public ExtentCursor {
 public:
  CoarseCursor() noexcept : ExtentCursor({.capacity = 2 * kMiB, .granularity = 64 * kKiB}) {}

 private:
  absl::Status DoSeek(uint64_t) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (covered() % kMiB == 0) batch.push_back({covered(), 4 * kKiB});
    return covered() + granularity();
  }
};

// An input that rounds a position down further than the result may begin with extents below it.
TEST(SetTransformTest, ExtentsBelowAPositionAreLeftOut) {
  Cursors inputs;
  inputs.push_back(std::make_unique<CoarseCursor>());
  inputs.push_back(test::CursorOver({}, 2 * kMiB, 4 * kKiB));
  ASSERT_OK_AND_ASSIGN(auto cursor, Union(std::move(inputs)));
  ASSERT_LE(cursor->granularity(), 8 * kKiB);
  EXPECT_OK(cursor->Seek(8 * kKiB));
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), (Ranges{{kMiB, 4 * kKiB}}));
}

// `bits` is the answer byte by byte. Checked from every offset, with any batch size.
void CheckEverywhere(ExtentCursor& cursor, const ByteSet& bits, std::mt19937_64& random) {
  const Ranges want = reference::RunsOf(bits);
  const size_t batch = 1 + random() % 40;
  RC_ASSERT(ValueOf(test::Drain(cursor, batch)) == want);
  for (int i = 0; i < 8; ++i) {
    const uint64_t offset = random() % (bits.size() + 1);
    const uint64_t at = offset == bits.size() ? offset : AlignDown(offset, cursor.granularity());
    // Abandoned halfway: extents that were read but not used must not come back.
    test::RequireOk(cursor.Seek(random() % (bits.size() + 1)));
    ExtentBatch some(batch);
    for (uint64_t steps = random() % 4; steps > 0; --steps) test::RequireOk(cursor.Next(some));
    RC_ASSERT(ValueOf(test::DrainFrom(cursor, offset, batch)) == reference::CutAt(want, at));
  }
}

RC_GTEST_PROP(SetTransformProperty, UnionOfAnyNumberOfInputs, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const auto capacity = test::Between<uint64_t>(1, 3000);
  const auto count = *rc::gen::element<size_t>(1, 2, 3, 16, 100);
  ByteSet want(capacity, false);
  Cursors inputs;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t granularity = uint64_t{1} << (random() % 5);
    const Ranges ranges = AnyRanges(random, capacity, granularity);
    const ByteSet bytes = reference::BytesOf(ranges, capacity);
    for (size_t k = 0; k < capacity; ++k) want[k] = want[k] || bytes[k];
    inputs.push_back(
        std::make_unique<SlowCursor>(ranges, capacity, granularity, 1 + random() % 20));
  }
  CheckEverywhere(*ValueOf(Union(std::move(inputs))), want, random);
}

RC_GTEST_PROP(SetTransformProperty, IntersectionAndDifference, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const auto capacity = test::Between<uint64_t>(1, 3000);
  const uint64_t granularities[2] = {1 + random() % 7, 1 + random() % 7};
  Ranges ranges[2];
  ByteSet bytes[2];
  for (int i = 0; i < 2; ++i) {
    ranges[i] = AnyRanges(random, capacity, granularities[i]);
    bytes[i] = reference::BytesOf(ranges[i], capacity);
  }
  const auto input = [&](int i) {
    return std::make_unique<SlowCursor>(ranges[i], capacity, granularities[i], 1 + random() % 20);
  };
  ByteSet both(capacity);
  ByteSet difference(capacity);
  for (size_t k = 0; k < capacity; ++k) {
    both[k] = bytes[0][k] && bytes[1][k];
    difference[k] = bytes[0][k] && !bytes[1][k];
  }
  CheckEverywhere(*ValueOf(Intersect(input(0), input(1))), both, random);
  CheckEverywhere(*ValueOf(Subtract(input(0), input(1))), difference, random);
}

// Lists long enough that windows end within them and vectors are full.
TEST(SetTransformTest, LongListsGiveWhatShortWindowsGive) {
  test::SeededRandom random(5);
  constexpr uint64_t kCapacity = 400'000;
  for (const size_t count : {size_t{2}, size_t{16}}) {
    ByteSet want(kCapacity, false);
    Cursors inputs;
    for (size_t i = 0; i < count; ++i) {
      const Ranges ranges = AnyRanges(random, kCapacity, 1);
      const ByteSet bytes = reference::BytesOf(ranges, kCapacity);
      for (size_t k = 0; k < kCapacity; ++k) want[k] = want[k] || bytes[k];
      inputs.push_back(test::CursorOver(ranges, kCapacity));
    }
    EXPECT_TRUE(test::SameRanges(ValueOf(test::Drain(*ValueOf(Union(std::move(inputs))), 1024)),
                                 reference::RunsOf(want)))
        << count << " inputs";
  }
}

}  // namespace set_transform_test
}  // namespace cbt

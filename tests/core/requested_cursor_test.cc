// Windows, chunks and bridges against a set of bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>
#include <string>

#include "cbt/transform.h"
#include "tests/reference/volume.h"
#include "tests/support/cursors.h"
#include "tests/support/generators.h"
#include "tests/support/properties.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace requested_cursor_test {

using reference::Ranges;
using testing::HasSubstr;

RC_GTEST_PROP(RequestedCursor, CountsWhatRoundingAndBridgingAdd, ()) {
  std::mt19937_64 random = AnyRandom();
  const size_t capacity = Between<size_t>(1, 5000);
  const size_t density = Between<size_t>(1, 60);
  const reference::ByteSet set = RunsAndGaps(random, capacity, density);
  const Requested requested{
      .chunk = uint64_t{1} << Between(0, 8),
      .bridge_gap = random() % 2 == 0 ? 0 : random() % 50,
      .offset = random() % (capacity + 1),
      .length = random() % 3 == 0 ? std::nullopt : std::optional(random() % capacity)};
  auto cursor = MakeRequestedCursor(CursorOver(reference::RunsOf(set), capacity), requested);
  RequireOk(cursor);
  const auto tuples = Drain(**cursor);
  RequireOk(tuples);
  const uint64_t end = requested.length.has_value()
                           ? std::min<uint64_t>(requested.offset + *requested.length, capacity)
                           : capacity;
  uint64_t bytes = 0;
  uint64_t added = 0;
  reference::ByteSet got(capacity);
  for (const auto& [offset, length] : *tuples) {
    RC_ASSERT(offset >= requested.offset && offset + length <= end);
    RC_ASSERT(offset % requested.chunk == 0 || offset == requested.offset);
    RC_ASSERT((offset + length) % requested.chunk == 0 || offset + length == end);
    for (uint64_t i = offset; i < offset + length; ++i) {
      got[i] = true;
      ++bytes;
      added += set[i] ? 0 : 1;
    }
  }
  Require(IsSubset(reference::Window(set, requested.offset, end), got));
  RC_ASSERT((*cursor)->bytes() == bytes);
  RC_ASSERT((*cursor)->added_bytes() == added);

  // A window from any offset counts only what follows.
  const uint64_t place = random() % capacity;
  RequireOk((*cursor)->Seek(place));
  const auto rest = Drain(**cursor);
  RequireOk(rest);
  bytes = added = 0;
  for (const auto& [offset, length] : *rest) {
    for (uint64_t i = offset; i < offset + length; ++i) {
      ++bytes;
      added += set[i] ? 0 : 1;
    }
  }
  RC_ASSERT((*cursor)->bytes() == bytes);
  RC_ASSERT((*cursor)->added_bytes() == added);
}

// A bridge over very many extents must not hold them all in memory.
TEST(RequestedCursor, CountsAcrossManyBatches) {
  Ranges ranges;
  for (uint64_t i = 0; i < 100'000; ++i) ranges.emplace_back(i * 16, 8);
  auto cursor = MakeRequestedCursor(CursorOver(ranges, 1'600'000), {.bridge_gap = 8});
  ASSERT_OK(cursor);
  EXPECT_EQ(ValueOf(Drain(**cursor)), (Ranges{{0, 1'599'992}}));
  EXPECT_EQ((*cursor)->added_bytes(), 1'599'992u - 800'000u);
}

TEST(RequestedCursor, BridgesAGapOfOneByte) {
  auto cursor = MakeRequestedCursor(CursorOver({{0, 4}, {5, 4}, {11, 1}}, 100), {.bridge_gap = 1});
  ASSERT_OK(cursor);
  EXPECT_EQ(ValueOf(Drain(**cursor)), (Ranges{{0, 9}, {11, 1}}));
  EXPECT_EQ((*cursor)->added_bytes(), 1u);
}

// Returns one extent, then fails. Cannot seek back unless `rewinds`.
class Failing final : public ExtentCursor {
 public:
  explicit Failing(bool rewinds)
      : ExtentCursor({.capacity = 1000, .granularity = 1}), rewinds_(rewinds) {}

 private:
  absl::Status DoSeek(uint64_t) override {
    given_ = false;
    return rewinds_ ? absl::OkStatus() : absl::UnavailableError("no way back");
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (given_) return absl::DataLossError("cut");
    given_ = true;
    batch.push_back({10, 5});
    return 20;
  }

  const bool rewinds_;
  bool given_ = false;
};

TEST(RequestedCursor, E14ErrorsOfTheInputAreErrors) {
  for (const uint64_t chunk : {uint64_t{1}, uint64_t{64}}) {
    auto cursor = MakeRequestedCursor(std::make_unique<Failing>(true), {.chunk = chunk});
    ASSERT_OK(cursor);
    EXPECT_EQ(Drain(**cursor).status().code(), absl::StatusCode::kDataLoss);
  }
  ExtentBatch batch;
  for (const bool rewinds : {true, false}) {
    auto input = std::make_unique<Failing>(rewinds);
    ASSERT_OK(input->Next(batch));
    // A cursor that was already read must rewind, or is refused.
    auto cursor = MakeRequestedCursor(std::move(input), {});
    ASSERT_EQ(cursor.ok(), rewinds);
    if (!rewinds) {
      EXPECT_EQ(cursor.status().code(), absl::StatusCode::kUnavailable);
    } else {
      ASSERT_OK((*cursor)->Next(batch));
      EXPECT_EQ(batch.front().offset, 10u);
    }
  }
}

// The window starts where the input cannot seek to.
TEST(RequestedCursor, E14AnInputThatDoesNotSeekIsAnError) {
  const Requested window = {.offset = 10, .length = 5};
  EXPECT_EQ(MakeRequestedCursor(std::make_unique<Failing>(false), window).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_OK(MakeRequestedCursor(std::make_unique<Failing>(true), window));
}

TEST(RequestedCursor, AWindowAtTheBeginningEndsWhereItShould) {
  auto cursor = MakeRequestedCursor(CursorOver({{0, 10}, {20, 10}}, 100), {.length = 25});
  ASSERT_OK(cursor);
  EXPECT_EQ(ValueOf(Drain(**cursor)), (reference::Ranges{{0, 10}, {20, 5}}));
  EXPECT_EQ((*cursor)->bytes(), 15u);
}

TEST(RequestedCursor, RefusesChunksThatAreNone) {
  for (const uint64_t chunk : {uint64_t{0}, kMaxGranularity + 1, UINT64_MAX}) {
    for (const Requested& requested :
         {Requested{.chunk = chunk}, Requested{.chunk = chunk, .bridge_gap = 1},
          Requested{.chunk = chunk, .offset = 1}}) {
      EXPECT_EQ(MakeRequestedCursor(CursorOver({}, 10), requested).status().code(),
                absl::StatusCode::kInvalidArgument);
    }
  }
  EXPECT_EQ(MakeRequestedCursor(nullptr, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RequestedCursor, RefusesWindowsPastTheVolume) {
  EXPECT_EQ(MakeRequestedCursor(CursorOver({}, 100), {.offset = 101}).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(MakeRequestedCursor(CursorOver({}, 100), {.chunk = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeRequestedCursor(nullptr, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace requested_cursor_test
}  // namespace cbt::test

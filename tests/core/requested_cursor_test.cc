// Windows, chunks and bridges against a set of bytes; objects of pages.
#include "cbt/requested_cursor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>
#include <string>

#include "cbt/transform.h"
#include "cbt/volume_snapshot_delta.h"
#include "reference/volume.h"
#include "support/cursors.h"
#include "support/generators.h"

namespace cbt::test {
namespace {

using reference::Ranges;
using testing::HasSubstr;

RC_GTEST_PROP(RequestedCursor, CountsWhatRoundingAndBridgingAdd, ()) {
  std::mt19937_64 random = AnyRandom();
  const size_t capacity = Between<size_t>(1, 5000);
  const size_t density = Between<size_t>(1, 60);
  reference::ByteSet set(capacity);
  for (size_t i = 0; i < capacity; ++i) {
    set[i] = (i > 0 && set[i - 1]) ? random() % 4 != 0 : random() % density == 0;
  }
  const Requested requested{
      .chunk = uint64_t{1} << Between(0, 8),
      .bridge_gap = random() % 2 == 0 ? 0 : random() % 50,
      .offset = random() % (capacity + 1),
      .length = random() % 3 == 0 ? std::nullopt : std::optional(random() % capacity)};
  auto cursor = MakeRequestedCursor(CursorOver(reference::RunsOf(set), capacity), requested);
  RC_ASSERT(cursor.ok());
  const auto tuples = Drain(**cursor);
  RC_ASSERT(tuples.ok());
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
  for (uint64_t i = requested.offset; i < end; ++i) RC_ASSERT(!set[i] || got[i]);
  RC_ASSERT((*cursor)->bytes() == bytes);
  RC_ASSERT((*cursor)->added_bytes() == added);

  // From anywhere on it counts what comes from there.
  const uint64_t place = random() % capacity;
  RC_ASSERT((*cursor)->Seek(place).ok());
  const auto rest = Drain(**cursor);
  RC_ASSERT(rest.ok());
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

// A bridge over very many extents must not keep them all.
TEST(RequestedCursor, CountsAcrossManyBatches) {
  Ranges ranges;
  for (uint64_t i = 0; i < 100'000; ++i) ranges.emplace_back(i * 16, 8);
  auto cursor = MakeRequestedCursor(CursorOver(ranges, 1'600'000), {.bridge_gap = 8});
  ASSERT_TRUE(cursor.ok());
  EXPECT_EQ(*Drain(**cursor), (Ranges{{0, 1'599'992}}));
  EXPECT_EQ((*cursor)->added_bytes(), 1'599'992u - 800'000u);
}

TEST(RequestedCursor, BridgesAGapOfOneByte) {
  auto cursor = MakeRequestedCursor(CursorOver({{0, 4}, {5, 4}, {11, 1}}, 100), {.bridge_gap = 1});
  ASSERT_TRUE(cursor.ok());
  EXPECT_EQ(*Drain(**cursor), (Ranges{{0, 9}, {11, 1}}));
  EXPECT_EQ((*cursor)->added_bytes(), 1u);
}

// Gives one extent, then fails; can't go back when `rewinds` is false.
class Failing final : public ExtentCursor {
 public:
  explicit Failing(bool rewinds) : ExtentCursor(1000, 1), rewinds_(rewinds) {}

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
    ASSERT_TRUE(cursor.ok());
    EXPECT_EQ(Drain(**cursor).status().code(), absl::StatusCode::kDataLoss);
  }
  ExtentBatch batch;
  for (const bool rewinds : {true, false}) {
    auto input = std::make_unique<Failing>(rewinds);
    ASSERT_TRUE(input->Next(batch).ok());
    // One that was read from begins anew, or can't be used.
    auto cursor = MakeRequestedCursor(std::move(input), {});
    ASSERT_EQ(cursor.ok(), rewinds);
    if (!rewinds) {
      EXPECT_EQ(cursor.status().code(), absl::StatusCode::kUnavailable);
    } else {
      ASSERT_TRUE((*cursor)->Next(batch).ok());
      EXPECT_EQ(batch.front().offset, 10u);
    }
  }
}

// The window begins where the input can't go.
TEST(RequestedCursor, E14AnInputThatDoesNotSeekIsAnError) {
  const Requested window = {.offset = 10, .length = 5};
  EXPECT_EQ(MakeRequestedCursor(std::make_unique<Failing>(false), window).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_TRUE(MakeRequestedCursor(std::make_unique<Failing>(true), window).ok());
}

TEST(RequestedCursor, AWindowAtTheBeginningEndsWhereItShould) {
  auto cursor = MakeRequestedCursor(CursorOver({{0, 10}, {20, 10}}, 100), {.length = 25});
  ASSERT_TRUE(cursor.ok());
  EXPECT_EQ(*Drain(**cursor), (reference::Ranges{{0, 10}, {20, 5}}));
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

TEST(VolumeSnapshotDelta, PagesByBlockIndex) {
  const VolumeSnapshotDeltaSpec spec{.name = "d",
                                     .name_space = "n",
                                     .base_snapshot = "a",
                                     .target_snapshot = "b\"",
                                     .limit = 2,
                                     .offset = 0};
  const auto open = [] { return CursorOver({{0, 1}, {5000, 10}, {20000, 10}}, 30000); };
  EXPECT_EQ(*RenderVolumeSnapshotDelta(spec, open(), 4096),
            R"({"apiVersion":"cbt.storage.k8s.io/v1alpha1","kind":"VolumeSnapshotDelta",)"
            R"("metadata":{"name":"d","namespace":"n"},)"
            R"("spec":{"baseVolumeSnapshotName":"a","targetVolumeSnapshotName":"b\"",)"
            R"("mode":"block","limit":2,"offset":0},)"
            R"("status":{"state":1,"limit":2,"offset":0,"continue":2,"changedBlockDeltas":[)"
            R"({"offset":0,"blockSizeBytes":4096},{"offset":1,"blockSizeBytes":4096}]}})");
  VolumeSnapshotDeltaSpec next = spec;
  next.offset = 2;
  const std::string last = *RenderVolumeSnapshotDelta(next, open(), 4096);
  EXPECT_THAT(last, HasSubstr(R"("state":0)"));
  EXPECT_THAT(last, HasSubstr(R"([{"offset":4,"blockSizeBytes":4096}])"));
  next.offset = 9;
  EXPECT_THAT(*RenderVolumeSnapshotDelta(next, open(), 4096), HasSubstr(R"("state":2)"));
  next.limit = 0;
  EXPECT_FALSE(RenderVolumeSnapshotDelta(next, open(), 4096).ok());
  EXPECT_FALSE(RenderVolumeSnapshotDelta(spec, open(), 0).ok());
  EXPECT_THAT(RenderFailedVolumeSnapshotDelta(spec, absl::NotFoundError("gone")),
              HasSubstr(R"("state":2,"error":"NOT_FOUND: gone")"));
}

// Fails where it is sought to (`at` 0) or at its n-th batch.
class BrokenCursor final : public ExtentCursor {
 public:
  explicit BrokenCursor(int at) : ExtentCursor(1 << 20, 4096), at_(at) {}

 private:
  absl::Status DoSeek(uint64_t) override {
    return at_ == 0 ? absl::DataLossError("torn") : absl::OkStatus();
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (++batches_ == at_) return absl::DataLossError("torn");
    batch.push_back({covered(), 4096});
    return covered() + 8192;
  }

  const int at_;
  int batches_ = 0;
};

TEST(VolumeSnapshotDelta, TellsTheCallerWhyAPageFailed) {
  const VolumeSnapshotDeltaSpec spec{.target_snapshot = "t", .limit = 3};
  for (const int at : {0, 1, 3}) {
    absl::Status failure;
    const std::string page =
        *RenderVolumeSnapshotDelta(spec, std::make_unique<BrokenCursor>(at), 4096, &failure);
    EXPECT_EQ(failure, absl::DataLossError("torn"));
    EXPECT_THAT(page, HasSubstr(R"("state":2,"error":"DATA_LOSS: torn")"));
    EXPECT_THAT(page, HasSubstr(R"("changedBlockDeltas":[])"));
  }
  absl::Status failure = absl::UnknownError("of before");
  EXPECT_THAT(*RenderVolumeSnapshotDelta(spec, std::make_unique<BrokenCursor>(9), 4096, &failure),
              HasSubstr(R"("state":1)"));
  EXPECT_EQ(failure, absl::OkStatus());
}

}  // namespace
}  // namespace cbt::test

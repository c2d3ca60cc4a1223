// Kernel runs as extents of a batch: units, the cut at the capacity, and runs that wait for room.
#include "core/run_sink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cbt/units.h"

namespace cbt {
namespace run_sink_test {

// Writes `runs` as a kernel does: past the extents of `batch`, and past its capacity too.
void Write(const RunSink& sink, const std::vector<Extent>& runs, ExtentBatch& batch) {
  uint64_t* const offsets = batch.mutable_offsets() + batch.size();
  uint64_t* const lengths = batch.mutable_lengths() + batch.size();
  for (size_t i = 0; i < runs.size(); ++i) {
    offsets[i] = runs[i].offset << sink.shift();
    lengths[i] = runs[i].length << sink.shift();
  }
  sink.Scale(offsets, lengths, runs.size());
}

std::vector<Extent> All(const ExtentBatch& batch) {
  std::vector<Extent> extents;
  for (size_t i = 0; i < batch.size(); ++i) extents.push_back(batch[i]);
  return extents;
}

TEST(RunSink, ShiftsByPowersOfTwoAndMultipliesByTheRest) {
  EXPECT_EQ(RunSink(kMiB, 4096).shift(), 12u);
  EXPECT_EQ(RunSink(kMiB, 4096).factor(), 1u);
  EXPECT_EQ(RunSink(kMiB, 1).shift(), 0u);
  EXPECT_EQ(RunSink(kMiB, 1).factor(), 1u);
  EXPECT_EQ(RunSink(kMiB, 520).shift(), 0u);
  EXPECT_EQ(RunSink(kMiB, 520).factor(), 520u);
  EXPECT_EQ(RunSink(kMaxCapacity, kMaxGranularity).shift(), 62u);
}

// Any number of runs into any amount of room: order and bytes hold, nothing is repeated.
TEST(RunSink, WhatHasNoRoomWaitsForIt) {
  for (const uint64_t granularity : {uint64_t{512}, uint64_t{520}}) {
    for (size_t capacity = 1; capacity <= 9; ++capacity) {
      for (size_t before = 0; before < capacity; ++before) {
        for (size_t count = 0; count <= capacity - before + simd::kRunSlack; ++count) {
          SCOPED_TRACE(testing::Message()
                       << "granularity " << granularity << ", batches of " << capacity << ", "
                       << before << " in the first, " << count << " runs");
          RunSink sink(kMaxCapacity, granularity);
          ExtentBatch batch(capacity);
          std::vector<Extent> want;
          for (size_t i = 0; i < before; ++i) {
            batch.push_back({i, 1});
            want.push_back(batch.back());
          }
          std::vector<Extent> runs;
          for (uint64_t i = 0; i < count; ++i) {
            runs.push_back({100 + 5 * i, 1 + i % 3});
            want.push_back({runs.back().offset * granularity, runs.back().length * granularity});
          }
          Write(sink, runs, batch);
          sink.Append(count, batch);
          std::vector<Extent> got = All(batch);
          ASSERT_EQ(got.size(), std::min(capacity, before + count));
          while (sink.waiting()) {
            ASSERT_LT(got.size(), want.size());
            EXPECT_EQ(sink.front(), want[got.size()]);
            batch.clear();
            sink.Take(batch);
            ASSERT_FALSE(batch.empty());
            const std::vector<Extent> more = All(batch);
            got.insert(got.end(), more.begin(), more.end());
          }
          ASSERT_EQ(got, want);
        }
      }
    }
  }
}

TEST(RunSink, TakesNothingIntoAFullBatch) {
  RunSink sink(kMaxCapacity, 1);
  ExtentBatch batch(1);
  Write(sink, {{3, 1}, {7, 2}}, batch);
  sink.Append(2, batch);
  sink.Take(batch);
  EXPECT_EQ(All(batch), (std::vector<Extent>{{3, 1}}));
  EXPECT_TRUE(sink.waiting());
}

TEST(RunSink, CutsTheLastRunAtTheCapacity) {
  for (const size_t room : {size_t{1}, size_t{2}, size_t{3}}) {
    RunSink sink(5 * 4096 + 1, 4096);
    ExtentBatch batch(room);
    Write(sink, {{1, 1}, {4, 2}}, batch);
    sink.Append(2, batch);
    std::vector<Extent> got = All(batch);
    batch.clear();
    sink.Take(batch);
    const std::vector<Extent> more = All(batch);
    got.insert(got.end(), more.begin(), more.end());
    EXPECT_EQ(got, (std::vector<Extent>{{4096, 4096}, {4 * 4096, 4097}})) << "room " << room;
  }
}

TEST(RunSink, ResetDropsWhatWaits) {
  RunSink sink(kMaxCapacity, 1);
  ExtentBatch batch(1);
  Write(sink, {{1, 1}, {3, 1}}, batch);
  sink.Append(2, batch);
  ASSERT_TRUE(sink.waiting());
  sink.Reset();
  EXPECT_FALSE(sink.waiting());
}

}  // namespace run_sink_test
}  // namespace cbt

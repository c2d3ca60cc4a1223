// Data that others lost at the edges of volumes; the numbers are those of table.csv.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/bitmap.h"
#include "cbt/change_map.h"
#include "cbt/change_tracker.h"
#include "cbt/extent.h"
#include "cbt/memory.h"
#include "cbt/transform.h"
#include "cbt/units.h"
#include "tests/map/tracker/epochs.h"
#include "tests/reference/volume.h"
#include "tests/support/cursors.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace geometry_test {

using test::ValueOf;

using reference::Ranges;
using Cursor = std::unique_ptr<ExtentCursor>;
__extension__ typedef unsigned __int128 Wide;  // NOLINT(modernize-use-using)

// The union of half-open intervals, cut at `capacity`.
Ranges UnionOf(Ranges intervals, uint64_t capacity) {
  std::sort(intervals.begin(), intervals.end());
  Ranges ranges;
  for (const auto& [begin, end] : intervals) {
    const uint64_t to = std::min(end, capacity);
    if (begin >= to) continue;
    if (!ranges.empty() && begin <= ranges.back().first + ranges.back().second) {
      uint64_t& length = ranges.back().second;
      length = std::max(length, to - ranges.back().first);
    } else {
      ranges.emplace_back(begin, to - begin);
    }
  }
  return ranges;
}

// Resizes a map from `before` to `after` bytes. The first and a middle block have changed, and the
// last one if `with_last`.
void CheckResize(uint64_t before, uint64_t after, uint64_t block, bool with_last) {
  SCOPED_TRACE(testing::Message() << (with_last ? "last block too, " : "") << before << " to "
                                  << after << " in blocks of " << block);
  ChangeMapBuilder builder = ValueOf(ChangeMapBuilder::Create({before, block}));
  Ranges changed;
  for (const uint64_t offset : {uint64_t{0}, before / 2, with_last ? before - 1 : 0}) {
    ASSERT_OK(builder.Add({offset, 1}));
    const uint64_t begin = offset / block * block;
    changed.emplace_back(begin, begin + block);
  }
  const ChangeMap map = ValueOf(builder.Build());
  // The new area is unknown, and so is the rest of a partial last block.
  if (after > before) changed.emplace_back(before / block * block, after);
  const Ranges want = UnionOf(changed, after);
  const absl::StatusOr<ChangeMap> resized = WithCapacity(map, after);
  ASSERT_OK(resized);
  EXPECT_EQ(test::RangesOf(*resized), want);
  if (after < before) return;
  // The same through a union with a map of the larger volume.
  const ChangeMap quiet = ValueOf(ChangeMap::Empty({after, block}));
  EXPECT_EQ(test::RangesOf(ValueOf(Union(map, quiet))), want);
  EXPECT_EQ(test::RangesOf(ValueOf(Union(quiet, map))), want);
}

TEST(Disasters, D1AVolumeThatGrowsAcrossAnyPowerOfTwoHasAllOfItsNewAreaChanged) {
  int resizes = 0;
  for (unsigned k = 12; k <= 62; ++k) {
    const uint64_t power = uint64_t{1} << k;
    for (const uint64_t block : {uint64_t{512}, uint64_t{4096}, uint64_t{3} << 9}) {
      const uint64_t sizes[] = {power - block, power - 1, power, power + 1, power + block};
      for (const uint64_t before : sizes) {
        for (const uint64_t after : sizes) {
          if (before == 0 || before == after) continue;
          // If the last block changed anyway, that would mask its unknown rest.
          CheckResize(before, after, block, true);
          CheckResize(before, after, block, false);
          resizes += 2;
        }
      }
    }
    if (k == 62 || HasFailure()) continue;
    // Up to the next power of two, with a bounded number of blocks.
    const uint64_t block = std::max<uint64_t>(512, power >> 20);
    for (const uint64_t past : {uint64_t{0}, uint64_t{1}, block}) {
      CheckResize(power, 2 * power - past, block, true);
      CheckResize(power - 1, power + power / 2 + past, block, false);
      resizes += 2;
    }
  }
  EXPECT_GT(resizes, 6000);
}

// Every in-memory cursor over a volume in which the bytes of `changed` have changed.
std::vector<std::pair<const char*, Cursor>> CursorsOver(const Extent& changed, uint64_t capacity,
                                                        uint64_t block,
                                                        std::vector<uint8_t>& bits) {
  const uint64_t blocks = BlockCount(capacity, block);
  bits.assign(blocks / 8 + 1, 0);
  for (uint64_t b = changed.offset / block; b * block < changed.end(); ++b) {
    bits[b / 8] = static_cast<uint8_t>(bits[b / 8] | 1u << b % 8);
  }
  static const std::vector<uint8_t> none(4096);
  const BitmapView bitmap = ValueOf(BitmapView::Create(bits, 0, blocks));
  const BitmapView empty = ValueOf(BitmapView::Create(none, 0, blocks));
  const auto exact = [&] { return test::CursorOver({{changed.offset, changed.length}}, capacity); };
  const auto tracker =
      ValueOf(ChangeTracker::Create({.geometry = {capacity, block}, .region_bytes = block}));
  EXPECT_OK(tracker->Mark(changed));
  ChangeMapBuilder builder = ValueOf(ChangeMapBuilder::Create({capacity, block}));
  EXPECT_OK(builder.Add(changed));
  std::vector<Cursor> inputs;
  inputs.push_back(ValueOf(AlignOutward(exact(), block)));
  inputs.push_back(exact());

  std::vector<std::pair<const char*, Cursor>> cursors;
  cursors.emplace_back("bitmap", ValueOf(MakeBorrowedBitmapCursor(
                                     bitmap, {.capacity = capacity, .granularity = block})));
  cursors.emplace_back(
      "bitmaps", ValueOf(MakeBorrowedBitmapCursor(empty, bitmap, BitmapOp::kXor,
                                                  {.capacity = capacity, .granularity = block})));
  cursors.emplace_back(
      "newly set", ValueOf(MakeBorrowedBitmapCursor(empty, bitmap, BitmapOp::kAndNot,
                                                    {.capacity = capacity, .granularity = block})));
  cursors.emplace_back("map", MakeChangeMapCursor(ValueOf(builder.Build())));
  cursors.emplace_back(
      "map of a bitmap",
      MakeChangeMapCursor(ValueOf(ChangeMap::FromBitmap(bitmap, {capacity, block}))));
  cursors.emplace_back("tracker", MakeChangeMapCursor(ValueOf(tracker->Changes())));
  cursors.emplace_back("align", ValueOf(AlignOutward(exact(), block)));
  cursors.emplace_back("union", ValueOf(AlignOutward(ValueOf(Union(std::move(inputs))), block)));
  cursors.emplace_back(
      "subtract",
      ValueOf(AlignOutward(ValueOf(Subtract(exact(), test::CursorOver({}, capacity))), block)));
  cursors.emplace_back("requested",
                       ValueOf(MakeRequestedCursor(exact(), {.chunk = block, .offset = 0})));
  return cursors;
}

TEST(Disasters, D14TheLastBlockOfAVolumeIsReportedHoweverItEnds) {
  for (uint64_t capacity = 1; capacity <= 140; ++capacity) {
    for (const uint64_t block : {1u, 2u, 3u, 7u, 8u, 16u, 64u, 100u, 200u}) {
      // The last byte alone; or everything, so that a run is open at the end.
      for (const Extent changed : {Extent{capacity - 1, 1}, Extent{0, capacity}}) {
        const uint64_t begin = changed.offset / block * block;
        const Ranges want = {{begin, capacity - begin}};
        std::vector<uint8_t> bits;
        for (auto& [name, cursor] : CursorsOver(changed, capacity, block, bits)) {
          ASSERT_EQ(ValueOf(test::Drain(*cursor, 1)), want)
              << name << ' ' << capacity << ' ' << block;
        }
      }
    }
  }
  for (const uint64_t block : {uint64_t{512}, uint64_t{1000}, uint64_t{4096}}) {
    for (const uint64_t blocks : {1u, 2u, 63u, 64u, 65u}) {
      for (const uint64_t more : {uint64_t{0}, uint64_t{1}, block - 1}) {
        const std::vector<uint8_t> base(blocks * block + more);
        std::vector<uint8_t> target = base;
        target.back() = 1;
        const uint64_t begin = (target.size() - 1) / block * block;
        ASSERT_OK_AND_ASSIGN(const Cursor cursor,
                             MakeBorrowedMemoryDeltaCursor(base, target, {.block_size = block}));
        EXPECT_EQ(ValueOf(test::Drain(*cursor)), (Ranges{{begin, target.size() - begin}}));
      }
    }
  }
}

// Block sizes of `capacity` that keep a tracker's bitmaps small.
std::vector<uint64_t> BlockSizesFor(uint64_t capacity) {
  const uint64_t least = std::max<uint64_t>(512, std::bit_ceil(capacity >> 20));
  std::vector<uint64_t> sizes;
  for (const uint64_t size : {least, least + 512, 3 * (least / 2) + 1, least << 7}) {
    if (size <= kMaxGranularity) sizes.push_back(size);
  }
  return sizes;
}

TEST(Disasters, D19BlocksAreCountedRightFromOneKibibyteToTheLargestVolume) {
  std::vector<uint64_t> capacities;
  for (unsigned k = 10; k <= 63; ++k) {
    const uint64_t power = uint64_t{1} << k;
    for (const uint64_t capacity : {power - 1, power, power + 1}) {
      if (capacity <= kMaxCapacity) capacities.push_back(capacity);
    }
  }
  for (const uint64_t capacity : capacities) {
    std::vector<uint64_t> sizes = {1,
                                   511,
                                   512,
                                   4096,
                                   1000000,
                                   kGiB,
                                   (uint64_t{1} << 32) - 1,
                                   uint64_t{1} << 32,
                                   kMaxGranularity};
    for (const uint64_t more : BlockSizesFor(capacity)) sizes.push_back(more);
    for (const uint64_t size : sizes) {
      const Wide blocks = (Wide{capacity} + size - 1) / size;
      ASSERT_TRUE(Wide{BlockCount(capacity, size)} == blocks) << capacity << ' ' << size;
      for (const uint64_t offset :
           {uint64_t{0}, uint64_t{1}, capacity / 3, capacity - 1, capacity}) {
        ASSERT_TRUE(Wide{AlignDown(offset, size)} == Wide{offset} / size * size);
        ASSERT_TRUE(Wide{AlignUp(offset, size)} == (Wide{offset} + size - 1) / size * size);
      }
    }
  }
}

// A tracker that is attached to nothing reports nothing, and no error. So each must show that it
// sees a write, in every epoch, at the right place.
TEST(Disasters, D19ATrackerOfAnySizeSeesAKnownWriteInEveryEpoch) {
  int writes = 0;
  for (unsigned k = 10; k <= 63; ++k) {
    for (const uint64_t past : {uint64_t{0}, uint64_t{513}}) {
      const uint64_t capacity = (uint64_t{1} << k) - 1 - past;
      for (const uint64_t block : BlockSizesFor(capacity)) {
        ASSERT_OK_AND_ASSIGN(
            const auto tracker,
            ChangeTracker::Create({.geometry = {capacity, block}, .region_bytes = block}));
        for (const uint64_t offset : {uint64_t{0}, capacity / 3, capacity / 2 + 1, capacity - 1}) {
          ASSERT_TRUE(ValueOf(tracker->Changes())->empty());
          if (writes % 2 == 0) {
            ASSERT_OK(tracker->Mark({offset, 1}));
          } else {
            tracker->Begin({offset, 1})->End();
          }
          ++writes;
          const auto seen = static_cast<uint64_t>(Wide{offset} / block);
          ASSERT_OK_AND_ASSIGN(const ChangeMap now, tracker->Changes());
          EXPECT_EQ(now->cardinality(), 1u) << capacity << ' ' << block << ' ' << offset;
          EXPECT_TRUE(now->Contains(seen)) << capacity << ' ' << block << ' ' << offset;
          ASSERT_OK(tracker->OpenEpoch("next"));
          EXPECT_TRUE(ValueOf(test::EndEpoch(*tracker))->Contains(seen));
        }
      }
    }
  }
  EXPECT_GT(writes, 1000);
}

// A typical consumer: it shifts to get block numbers, keeps its own bitmap, and silently drops what
// is outside.
class SloppyConsumer {
 public:
  SloppyConsumer(uint64_t capacity, uint64_t block)
      : shift_(static_cast<unsigned>(std::countr_zero(block))),
        bits_(BlockCount(capacity, block)) {}

  void Take(uint64_t offset, uint64_t length) {
    for (uint64_t at = offset; at < offset + length; at += uint64_t{1} << shift_) {
      if (at >> shift_ >= bits_.size()) continue;
      bits_[at >> shift_] = true;
    }
  }
  const std::vector<bool>& bits() const { return bits_; }

 private:
  unsigned shift_;
  std::vector<bool> bits_;
};

TEST(Disasters, D23ASloppyConsumerLosesNothingOfWhatWeEmit) {
  test::SeededRandom random(23);
  for (int round = 0; round < 400; ++round) {
    const uint64_t capacity = 1 + random() % 3000;
    const uint64_t block = uint64_t{1} << random() % 8;
    SCOPED_TRACE(absl::StrCat("round ", round, ", capacity ", capacity, ", block ", block));
    reference::ByteSet changed(capacity);
    for (uint64_t n = random() % 20; n > 0; --n) {
      const uint64_t begin = random() % capacity;
      const uint64_t end = std::min(capacity, begin + 1 + random() % 200);
      std::fill(changed.begin() + static_cast<long>(begin),
                changed.begin() + static_cast<long>(end), true);
    }
    if (random() % 2 == 0) changed.back() = true;
    const auto exact = [&] { return test::CursorOver(reference::RunsOf(changed), capacity); };
    std::vector<bool> want(BlockCount(capacity, block));
    for (uint64_t i = 0; i < capacity; ++i) {
      if (changed[i]) want[i / block] = true;
    }
    std::vector<std::pair<const char*, Cursor>> streams;
    streams.emplace_back("extents", ValueOf(AlignOutward(exact(), block)));
    streams.emplace_back("pieces",
                         ValueOf(Split(ValueOf(AlignOutward(exact(), block)), 3 * block)));
    streams.emplace_back("short pieces",
                         ValueOf(Split(ValueOf(AlignOutward(exact(), block)), block)));
    streams.emplace_back("blocks", ValueOf(ToBlocks(exact(), block)));
    streams.emplace_back("chunks", ValueOf(MakeRequestedCursor(exact(), {.chunk = block})));
    for (auto& [name, cursor] : streams) {
      SloppyConsumer consumer(capacity, block);
      uint64_t end = 0;
      ASSERT_OK_AND_ASSIGN(const Ranges stream, test::Drain(*cursor, 1 + random() % 9));
      for (const auto& [offset, length] : stream) {
        ASSERT_GT(length, 0u) << name;
        ASSERT_GE(offset, end) << name;
        ASSERT_LT(offset, capacity) << name;
        ASSERT_EQ(offset % block, 0u) << name;
        end = offset + length;
        // Blocks keep their size; anything else ends with the volume.
        ASSERT_LE(end, cursor->granularity() == block && std::string_view(name) == "blocks"
                           ? AlignUp(capacity, block)
                           : capacity)
            << name;
        consumer.Take(offset, length);
      }
      ASSERT_EQ(consumer.bits(), want) << name;
    }
  }
}

}  // namespace geometry_test
}  // namespace cbt

#include "cbt/change_map.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <iterator>

#include "cbt/memory.h"
#include "cbt/transform.h"
#include "cbt/units.h"
#include "tests/map/maps.h"
#include "tests/support/cursors.h"
#include "tests/support/generators.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace change_map_test {

using test::Blocks;
using test::BlocksOf;
using test::EdgeKeys;
using test::kEdgeVolume;
using test::MapOf;
using test::SomeBlocks;
using test::ValueOf;

constexpr uint64_t kG = 4096;

Blocks Numbers(uint64_t begin, uint64_t end) {
  Blocks blocks;
  for (uint64_t b = begin; b < end; ++b) blocks.push_back(b);
  return blocks;
}

template <typename Operation>
Blocks Combined(Operation operation, const Blocks& a, const Blocks& b) {
  Blocks result;
  operation(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result));
  return result;
}

#define COMBINED(operation, a, b) Combined([](auto... arguments) { operation(arguments...); }, a, b)

TEST(ChangeMapTest, DefaultIsTheEmptyMapOfAnEmptyVolume) {
  const ChangeMap map;
  EXPECT_EQ(map->capacity(), 0u);
  EXPECT_TRUE(map->empty());
  EXPECT_FALSE(map->Contains(0));
  EXPECT_EQ(BlocksOf(map), Blocks());
  EXPECT_OK(ChangeMap::FromPortable64(map->portable(), {0, 1}));
}

TEST(ChangeMapTest, FullHoldsEveryBlockOfAnyVolume) {
  for (const uint64_t blocks : {1u, 2u, 65535u, 65536u, 65537u, 200000u}) {
    const VolumeGeometry geometry{blocks * kG - 1, kG};
    ASSERT_OK_AND_ASSIGN(const ChangeMap map, ChangeMap::Full(geometry));
    EXPECT_EQ(map->cardinality(), blocks);
    EXPECT_EQ(map->changed_bytes(), geometry.capacity);
    EXPECT_EQ(ValueOf(test::Drain(*MakeChangeMapCursor(map))),
              (reference::Ranges{{0, geometry.capacity}}));
  }
  // 16 TiB in 4 KiB blocks: 65536 run containers.
  ASSERT_OK_AND_ASSIGN(const ChangeMap large, ChangeMap::Full({uint64_t{1} << 44, kG}));
  EXPECT_EQ(large->cardinality(), uint64_t{1} << 32);
  EXPECT_LT(large->portable().size(), 1000000u);
  EXPECT_EQ(large->Statistics().runs, 1u);
  EXPECT_EQ(ValueOf(test::Drain(*MakeChangeMapCursor(large))),
            (reference::Ranges{{0, uint64_t{1} << 44}}));
}

TEST(ChangeMapTest, LargestVolume) {
  const VolumeGeometry geometry{kMaxCapacity, kGiB};
  ASSERT_OK_AND_ASSIGN(const ChangeMap map, ChangeMap::Full(geometry));
  EXPECT_EQ(map->changed_bytes(), kMaxCapacity);
  EXPECT_EQ(ValueOf(test::Drain(*MakeChangeMapCursor(map))),
            (reference::Ranges{{0, kMaxCapacity}}));
  // A map over its memory limit is refused before it allocates.
  EXPECT_EQ(ChangeMap::Full({kMaxCapacity, 512}).status().code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_OK_AND_ASSIGN(const ChangeMap two, ChangeMap::Full({kMaxCapacity, kMaxGranularity}));
  EXPECT_EQ(ValueOf(test::Drain(*MakeChangeMapCursor(two))),
            (reference::Ranges{{0, kMaxCapacity}}));
  ASSERT_OK_AND_ASSIGN(const ChangeMap one, ChangeMap::Full({1, kMaxGranularity}));
  EXPECT_EQ(ValueOf(test::Drain(*MakeChangeMapCursor(one))), (reference::Ranges{{0, 1}}));
}

TEST(ChangeMapTest, LastBlockMayBePartial) {
  const VolumeGeometry geometry{10 * kG + 1, kG};
  const ChangeMap map = MapOf({3, 10}, geometry);
  EXPECT_EQ(map->changed_bytes(), kG + 1);
  EXPECT_EQ(map->ChangedBytesBelow(4 * kG), kG);
  EXPECT_EQ(map->ChangedBytesBelow(3 * kG + 5), 5u);
  EXPECT_EQ(map->ChangedBytesBelow(10 * kG), kG);
  EXPECT_EQ(map->ChangedBytesBelow(UINT64_MAX), kG + 1);
  EXPECT_EQ(ValueOf(test::Drain(*MakeChangeMapCursor(map))),
            (reference::Ranges{{3 * kG, kG}, {10 * kG, 1}}));
}

// Found by a property: the batch was full after the volume's bits, before the last container's
// trailing bits.
TEST(ChangeMapTest, ABitsetMayGoOnPastTheCapacity) {
  Blocks blocks;
  for (uint64_t b = 0; b < 10000; b += 2) blocks.push_back(b);
  const ChangeMap map = MapOf(blocks, {9999 * 512 + 1, 512});
  ASSERT_EQ(map->Statistics().bitsets, 1u);
  for (const size_t batch :
       {1u, 2u, 31u, 32u, 33u, 100u, 624u, 625u, 1000u, 1250u, 2500u, 4999u, 5000u, 5001u}) {
    const std::unique_ptr<ExtentCursor> cursor = MakeChangeMapCursor(map);
    const absl::StatusOr<reference::Ranges> ranges = test::Drain(*cursor, batch);
    ASSERT_OK(ranges) << batch << ' ' << ranges.status();
    EXPECT_EQ(ranges->size(), blocks.size());
  }
}

TEST(ChangeMapTest, StatisticsCountEachKindOfContainer) {
  ASSERT_OK_AND_ASSIGN(ChangeMapBuilder builder, ChangeMapBuilder::Create({6 * 65536 * kG, kG}));
  for (const uint64_t block : {uint64_t{3}, uint64_t{7}, uint64_t{65535}}) {
    ASSERT_OK(builder.AddBlocks(block, block + 1));
  }
  for (uint64_t block = 65536; block < 2 * 65536; block += 2) {
    ASSERT_OK(builder.AddBlocks(block, block + 1));
  }
  for (const uint64_t container : {2u, 4u, 5u}) {
    ASSERT_OK(builder.AddBlocks(container * 65536 + 10, container * 65536 + 5000));
  }
  const ChangeMapStatistics statistics = ValueOf(builder.Build())->Statistics();
  EXPECT_EQ(statistics.arrays, 1u);
  EXPECT_EQ(statistics.bitsets, 1u);
  EXPECT_EQ(statistics.run_containers, 3u);
  EXPECT_EQ(statistics.blocks, 3u + 32768 + 3 * 4990);
  // The last block of the first container and the first of the second form one run.
  EXPECT_EQ(statistics.runs, 3u + 32768 - 1 + 3);
}

TEST(ChangeMapTest, RunsGoOnOverContainers) {
  // An array, runs, a bitset and a full container, each continuing into the next.
  Blocks blocks = Numbers(65534, 65536 + 70000);
  for (uint64_t b = 3 * 65536; b < 4 * 65536 - 10; b += 2) blocks.push_back(b);
  const Blocks more = Numbers(4 * 65536 - 1, 6 * 65536 + 1);
  blocks.insert(blocks.end(), more.begin(), more.end());
  const ChangeMap map = MapOf(blocks, {kTiB, 512});
  EXPECT_EQ(BlocksOf(map), blocks);
  const ChangeMapStatistics statistics = map->Statistics();
  EXPECT_EQ(statistics.blocks, blocks.size());
  EXPECT_EQ(statistics.runs, test::RangesOf(map).size());
  EXPECT_GT(statistics.bitsets, 0u);
}

// Handwritten array containers against the builder's encoding of the same blocks.
TEST(ChangeMapTest, EqualityIsThatOfTheBlocksHoweverTheyAreEncoded) {
  const VolumeGeometry geometry{100 * uint64_t{4096}, 4096};
  const auto array = [&geometry](const std::vector<uint16_t>& blocks) {
    std::vector<uint8_t> bytes;
    const auto put = [&bytes](uint64_t number, int size) {
      for (int i = 0; i < size; ++i) bytes.push_back(static_cast<uint8_t>(number >> 8 * i));
    };
    put(12346, 4);
    put(1, 4);
    put(0, 2);
    put(blocks.size() - 1, 2);
    put(16, 4);
    for (const uint16_t block : blocks) put(block, 2);
    return ValueOf(ChangeMap::FromPortable32(bytes, geometry));
  };
  ASSERT_OK_AND_ASSIGN(ChangeMapBuilder builder, ChangeMapBuilder::Create(geometry));
  ASSERT_OK(builder.AddBlocks(20, 30));
  ASSERT_OK_AND_ASSIGN(const ChangeMap run, builder.Build());
  ASSERT_EQ(run->Statistics().run_containers, 1u);
  EXPECT_EQ(run->Statistics().arrays, 0u);
  const ChangeMap same = array({20, 21, 22, 23, 24, 25, 26, 27, 28, 29});
  ASSERT_EQ(same->Statistics().arrays, 1u);
  EXPECT_EQ(same->Statistics().run_containers, 0u);
  EXPECT_TRUE(run.view() == same.view());
  EXPECT_TRUE(same.view() == run.view());
  for (const auto& other : {array({20, 21, 22, 23, 24, 25, 26, 27, 28, 30}),
                            array({19, 21, 22, 23, 24, 25, 26, 27, 28, 29})}) {
    EXPECT_FALSE(run.view() == other.view());
    EXPECT_FALSE(other.view() == run.view());
    EXPECT_FALSE(other.view() == same.view());
  }
}

RC_GTEST_PROP(ChangeMapTest, AnswersLikeASet, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const Blocks blocks = SomeBlocks(random, {0, 1, 65535, 65536, 65538});
  const ChangeMap map = MapOf(blocks, kEdgeVolume, random());
  RC_ASSERT(BlocksOf(map) == blocks);
  RC_ASSERT(map->cardinality() == blocks.size());
  for (int i = 0; i < 200; ++i) {
    uint64_t block = (random() % 4 == 0 ? random() % (uint64_t{1} << 33) : random() % 200000);
    if (!blocks.empty() && i % 2 == 0) block = blocks[random() % blocks.size()] + random() % 3;
    const auto at = std::lower_bound(blocks.begin(), blocks.end(), block);
    RC_ASSERT(map->Contains(block) == (at != blocks.end() && *at == block));
    RC_ASSERT(map->Rank(block) == static_cast<uint64_t>(at - blocks.begin()));
    RC_ASSERT(map->ChangedBytesBelow(block * 512 + 7) ==
              static_cast<uint64_t>(at - blocks.begin()) * 512 + (map->Contains(block) ? 7 : 0));
    const uint64_t end = block + random() % 70000;
    const auto last = std::lower_bound(blocks.begin(), blocks.end(), end);
    RC_ASSERT(map->ContainsRange(block, end) == (static_cast<uint64_t>(last - at) == end - block));
  }
}

RC_GTEST_PROP(ChangeMapTest, AlgebraIsThatOfSets, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const std::vector<uint64_t> keys = {0, 1, 65535, 65536};
  const Blocks a = SomeBlocks(random, keys);
  Blocks b = SomeBlocks(random, keys);
  // Operands that share most blocks reach other edge cases.
  if (random() % 3 == 0) b = COMBINED(std::set_union, a, b);
  if (random() % 3 == 0) {
    b = a;
    if (!b.empty()) b.erase(b.begin() + static_cast<std::ptrdiff_t>(random() % b.size()));
  }
  const ChangeMap map_a = MapOf(a, kEdgeVolume);
  const ChangeMap map_b = MapOf(b, kEdgeVolume);
  const struct {
    ChangeMap map;
    Blocks want;
    absl::Status (ChangeMap::*in_place)(const ChangeMapView&);
  } cases[] = {
      {ValueOf(Union(map_a, map_b)), COMBINED(std::set_union, a, b), &ChangeMap::UniteWith},
      {ValueOf(Intersection(map_a, map_b)), COMBINED(std::set_intersection, a, b),
       &ChangeMap::IntersectWith},
      {ValueOf(Difference(map_a, map_b)), COMBINED(std::set_difference, a, b),
       &ChangeMap::Subtract},
      {ValueOf(SymmetricDifference(map_a, map_b)), COMBINED(std::set_symmetric_difference, a, b),
       &ChangeMap::Toggle},
  };
  for (const auto& each : cases) {
    RC_ASSERT(BlocksOf(each.map) == each.want);
    RC_ASSERT(each.map->cardinality() == each.want.size());
    // A set of blocks has one serialisation, however it was made.
    const ChangeMap direct = MapOf(each.want, kEdgeVolume);
    RC_ASSERT(std::ranges::equal(each.map->portable(), direct->portable()));
    RC_ASSERT(each.map.view() == direct.view());
    ChangeMap changed = map_a;
    changed.set_identity({"volume", "a", "b"});
    test::RequireOk((changed.*each.in_place)(map_b));
    RC_ASSERT(changed.view() == direct.view());
    RC_ASSERT(changed.identity().target == "b");
  }
  RC_ASSERT((map_a.view() == map_b.view()) == (a == b));
}

RC_GTEST_PROP(ChangeMapTest, UnionOfManyMapsAndItsCursorAgree, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const size_t count = test::Between<size_t>(1, 6);
  std::vector<ChangeMap> maps;
  std::vector<ChangeMapView> views;
  Blocks all;
  for (size_t i = 0; i < count; ++i) {
    const Blocks blocks = SomeBlocks(random, {0, 1, 2, 65536});
    maps.push_back(MapOf(blocks, kEdgeVolume));
    views.push_back(maps.back());
    all = COMBINED(std::set_union, all, blocks);
  }
  RC_ASSERT(BlocksOf(ValueOf(Union(views))) == all);
  RC_ASSERT(BlocksOf(ValueOf(Union(maps))) == all);
  RC_ASSERT(BlocksOf(*ValueOf(MakeBorrowedUnionCursor(views))) == all);
  // A cursor over maps shares their bytes.
  const auto cursor = ValueOf(MakeUnionCursor(maps));
  views.clear();
  maps.clear();
  RC_ASSERT(BlocksOf(*cursor) == all);
}

TEST(ChangeMapTest, RefusesAUnionOfNothingAndOfDifferentVolumes) {
  EXPECT_EQ(MakeUnionCursor(std::span<const ChangeMap>()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Union(std::span<const ChangeMap>()).status().code(),
            absl::StatusCode::kInvalidArgument);
  const ChangeMap one = MapOf({1}, {kMiB, kG});
  for (const VolumeGeometry other : {VolumeGeometry{2 * kMiB, kG}, VolumeGeometry{kMiB, 2 * kG}}) {
    const std::vector<ChangeMap> maps = {one, MapOf({1}, other)};
    EXPECT_EQ(MakeUnionCursor(maps).status().code(), absl::StatusCode::kInvalidArgument);
    const std::vector<ChangeMapView> views(maps.begin(), maps.end());
    EXPECT_EQ(MakeBorrowedUnionCursor(views).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

RC_GTEST_PROP(ChangeMapTest, CursorsGoOnFromAnywhere, ()) {
  std::mt19937_64 random = test::AnyRandom();
  // A granularity that is not a power of two takes another path through the kernels.
  const uint64_t granularity = random() % 2 == 0 ? 512 : 1000;
  const VolumeGeometry geometry{(uint64_t{200001} << 16) * granularity, granularity};
  const Blocks blocks = SomeBlocks(random, {0, 1, 2, 65535, 65536});
  const ChangeMap map = MapOf(blocks, geometry);
  const std::vector<ChangeMap> halves = {MapOf(SomeBlocks(random, {1, 65535}), geometry), map};
  const Blocks both = COMBINED(std::set_union, blocks, BlocksOf(halves[0]));
  const std::unique_ptr<ExtentCursor> one = MakeChangeMapCursor(map);
  const std::unique_ptr<ExtentCursor> united = ValueOf(MakeUnionCursor(halves));
  for (const auto& [cursor, want] :
       {std::pair<ExtentCursor*, const Blocks*>{one.get(), &blocks}, {united.get(), &both}}) {
    const reference::Ranges full = ValueOf(test::DrainFrom(*cursor, 0, 1024));
    for (int i = 0; i < 30; ++i) {
      uint64_t block = random() % (uint64_t{3} << 16);
      if (!want->empty() && i % 2 == 0) block = (*want)[random() % want->size()] + random() % 2;
      const uint64_t start = block * granularity;
      reference::Ranges expected;
      for (const auto& [offset, length] : full) {
        if (offset + length <= start) continue;
        const uint64_t from = std::max(offset, start);
        expected.emplace_back(from, offset + length - from);
      }
      const size_t batch = test::Between<size_t>(1, 40);
      RC_ASSERT(ValueOf(test::DrainFrom(*cursor, start + random() % granularity, batch)) ==
                expected);
    }
  }
}

RC_GTEST_PROP(ChangeMapTest, FromBitmapEqualsFromItsCursor, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const uint64_t bits = test::Between<uint64_t>(1, 5 * 65536);
  const Blocks blocks = SomeBlocks(random, {0, 1, 2, 3, 4}, bits);
  const uint64_t shift = random() % 9;
  std::vector<uint8_t> bytes((bits + shift + 7) / 8, static_cast<uint8_t>(0));
  for (const uint64_t block : blocks) {
    bytes[(block + shift) / 8] =
        static_cast<uint8_t>(bytes[(block + shift) / 8] | 1u << (block + shift) % 8);
  }
  const VolumeGeometry geometry{bits * kG - random() % kG, kG};
  const BitmapView bitmap = ValueOf(BitmapView::Create(bytes, shift, bits));
  const ChangeMap map = ValueOf(ChangeMap::FromBitmap(bitmap, geometry));
  RC_ASSERT(BlocksOf(map) == blocks);
  const auto cursor = ValueOf(MakeBorrowedBitmapCursor(bitmap, geometry));
  const ChangeMap same = ValueOf(ChangeMap::FromCursor(*cursor));
  RC_ASSERT(std::ranges::equal(map->portable(), same->portable()));
}

// Returns one batch, whatever it contains.
class OneBatchCursor final : public ExtentCursor {
 public:
  OneBatchCursor(std::vector<Extent> extents, uint64_t capacity)
      : ExtentCursor({.capacity = capacity, .granularity = 1}), extents_(std::move(extents)) {}

 private:
  absl::Status DoSeek(uint64_t) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    for (const Extent& extent : extents_) batch.push_back(extent);
    return capacity();
  }
  const std::vector<Extent> extents_;
};

// Also from a cursor that is one byte past its beginning.
TEST(ChangeMapTest, FromCursorBeginsAtTheBeginning) {
  for (uint64_t moved = 0; moved <= 10; ++moved) {
    ASSERT_OK_AND_ASSIGN(const auto cursor,
                         MakeExtentCursor({{0, 1}, {5, 2}}, {.capacity = 10, .granularity = 1}));
    ASSERT_OK(cursor->Seek(moved));
    const absl::StatusOr<ChangeMap> map = ChangeMap::FromCursor(*cursor);
    ASSERT_OK(map);
    EXPECT_EQ((*map)->cardinality(), 3U) << moved;
  }
}

// Next() only checks the first and last extent of a batch.
TEST(ChangeMapTest, FromCursorRefusesExtentsThatGoBackwards) {
  const auto from = [](std::vector<Extent> extents, uint64_t granularity) {
    OneBatchCursor cursor(std::move(extents), 100);
    return ChangeMap::FromCursor(cursor, granularity);
  };
  EXPECT_EQ(BlocksOf(ValueOf(from({{0, 10}, {20, 5}, {30, 10}, {50, 10}}, 10))),
            (Blocks{0, 2, 3, 5}));
  // Overlapping and empty extents lose nothing.
  EXPECT_EQ(BlocksOf(ValueOf(from({{0, 10}, {20, 15}, {30, 10}, {45, 0}, {50, 10}}, 5))),
            (Blocks{0, 1, 4, 5, 6, 7, 10, 11}));
  for (const uint64_t granularity : {1u, 5u, 10u}) {
    for (const Extent& wrong : {Extent{20, 5}, Extent{0, 1}, Extent{30, UINT64_MAX - 20}}) {
      const absl::Status status = from({{0, 10}, {30, 10}, wrong, {50, 10}}, granularity).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status << ' ' << wrong.offset;
    }
  }
}

TEST(ChangeMapTest, FromBitmapWantsABitForEveryBlock) {
  const std::vector<uint8_t> bytes(8);
  ASSERT_OK_AND_ASSIGN(const BitmapView bitmap, BitmapView::Create(bytes, 0, 64));
  EXPECT_EQ(ChangeMap::FromBitmap(bitmap, {65 * kG, kG}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

RC_GTEST_PROP(ChangeMapTest, CoarserRoundsOutwardFinerIsExact, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const uint64_t capacity = (uint64_t{3} << 16) * 1024 - random() % 5000;
  const VolumeGeometry geometry{capacity, 1024};
  const Blocks blocks = SomeBlocks(random, {0, 1, 2}, BlockCount(capacity, 1024));
  const ChangeMap map = MapOf(blocks, geometry);
  // Twice to 2048 times the map's, a part of it, and others.
  for (const uint64_t granularity :
       {512u, 1024u, 2048u, 4096u, 65536u, 131072u, 1048576u, 2097152u, 1536u, 1000000u}) {
    Blocks want;
    for (const uint64_t block : blocks) {
      const uint64_t end = std::min(capacity, (block + 1) * 1024);
      for (uint64_t b = block * 1024 / granularity; b < BlockCount(end, granularity); ++b) {
        if (want.empty() || want.back() < b) want.push_back(b);
      }
    }
    const ChangeMap other = ValueOf(WithGranularity(map, granularity));
    RC_ASSERT(other->granularity() == granularity);
    RC_ASSERT(BlocksOf(other) == want);
  }
}

TEST(ChangeMapTest, MapsOfDifferentGranularityMeetAtTheFinest) {
  const ChangeMap coarse = MapOf({1}, {100 * kG, 4 * kG});
  const ChangeMap fine = MapOf({5, 50}, {100 * kG, kG});
  EXPECT_EQ(BlocksOf(ValueOf(Union(coarse, fine))), (Blocks{4, 5, 6, 7, 50}));
  EXPECT_EQ(BlocksOf(ValueOf(Intersection(fine, coarse))), (Blocks{5}));
  EXPECT_EQ(BlocksOf(ValueOf(Difference(coarse, fine))), (Blocks{4, 6, 7}));
  EXPECT_EQ(BlocksOf(ValueOf(SymmetricDifference(coarse, fine))), (Blocks{4, 6, 7, 50}));
  EXPECT_EQ(Union(coarse, MapOf({0}, {100 * kG, 3 * kG})).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ChangeMapTest, UnionKnowsNothingPastASmallerCapacity) {
  const ChangeMap small = MapOf({0}, {10 * kG + 5, kG});
  const ChangeMap large = MapOf({1}, {13 * kG, kG});
  // Block 10 of the smaller volume is partial: the rest of the block may have changed.
  const Blocks want = {0, 1, 10, 11, 12};
  EXPECT_EQ(BlocksOf(ValueOf(Union(small, large))), want);
  EXPECT_EQ(BlocksOf(ValueOf(Union(large, small))), want);
  EXPECT_EQ(ValueOf(Union(small, large))->capacity(), 13 * kG);
  for (const auto operation : {&Intersection, &Difference, &SymmetricDifference}) {
    EXPECT_EQ(operation(small, large).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ChangeMapTest, AnotherCapacityCutsOrMarks) {
  const ChangeMap map = MapOf({0, 9, 10}, {10 * kG + 5, kG});
  EXPECT_EQ(BlocksOf(ValueOf(WithCapacity(map, 9 * kG + 1))), (Blocks{0, 9}));
  EXPECT_EQ(BlocksOf(ValueOf(WithCapacity(map, 9 * kG))), (Blocks{0}));
  EXPECT_EQ(BlocksOf(ValueOf(WithCapacity(map, 0))), (Blocks{}));
  EXPECT_EQ(BlocksOf(ValueOf(WithCapacity(map, 12 * kG))), (Blocks{0, 9, 10, 11}));
  EXPECT_EQ(BlocksOf(ValueOf(WithCapacity(MapOf({0}, {10 * kG + 5, kG}), 10 * kG + 6))),
            (Blocks{0, 10}));
}

TEST(ChangeMapTest, BuilderRefusesWhatLiesOutsideAndKeepsTheRest) {
  ASSERT_OK_AND_ASSIGN(ChangeMapBuilder builder, ChangeMapBuilder::Create({10 * kG + 5, kG}));
  EXPECT_OK(builder.Add({10 * kG + 4, 1}));
  EXPECT_OK(builder.Add({kG - 1, 2}));
  EXPECT_OK(builder.Add({5 * kG, 0}));
  EXPECT_EQ(builder.Add({10 * kG + 4, 2}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(builder.Add({UINT64_MAX, 2}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_OK(builder.AddBlocks(5, 5));
  EXPECT_EQ(builder.AddBlocks(6, 5).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(builder.AddBlocks(5, 12).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(BlocksOf(ValueOf(builder.Build())), (Blocks{0, 1, 10}));
  EXPECT_EQ(BlocksOf(ValueOf(builder.Build())), (Blocks{}));
}

// A failed map lost the blocks that it was given, so later calls must not build one.
TEST(ChangeMapTest, BuilderThatFailedBuildsNoMap) {
  ASSERT_OK_AND_ASSIGN(ChangeMapBuilder builder, ChangeMapBuilder::Create({kMaxCapacity, 512}));
  // Fills a map of its own before the one that is refused.
  for (uint64_t i = 70000; i > 0; --i) ASSERT_OK(builder.AddBlocks(3 * i, 3 * i + 1));
  ASSERT_OK(builder.AddBlocks(0, kMaxCapacity / 512));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(builder.Build().status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_OK(builder.AddBlocks(5, 6));
  }
}

// More ranges than the builder buffers, so that it merges maps on the way.
TEST(ChangeMapTest, BuilderTakesManyWritesInAnyOrder) {
  test::SeededRandom random(5);
  const VolumeGeometry geometry{(uint64_t{40} << 16) * kG, kG};
  std::vector<bool> oracle(uint64_t{40} << 16);
  ASSERT_OK_AND_ASSIGN(ChangeMapBuilder builder, ChangeMapBuilder::Create(geometry));
  for (int i = 0; i < 400000; ++i) {
    const uint64_t begin = random() % oracle.size();
    const uint64_t end = std::min<uint64_t>(oracle.size(), begin + 1 + random() % 6);
    ASSERT_OK(builder.AddBlocks(begin, end));
    for (uint64_t b = begin; b < end; ++b) oracle[b] = true;
  }
  Blocks want;
  for (uint64_t b = 0; b < oracle.size(); ++b) {
    if (oracle[b]) want.push_back(b);
  }
  EXPECT_TRUE(test::SameBlocks(BlocksOf(ValueOf(builder.Build())), want));
}

// CRoaring before 0.9.5 leaves a container of 4096 members after remove_range() and loses most of
// them when it is read back. Ours computes a difference.
TEST(ChangeMapTest, TakingARangeAwayThatLeaves4096LosesNothing) {
  for (const uint64_t left : {4094u, 4095u, 4096u, 4097u, 4098u}) {
    Blocks blocks;
    for (uint64_t i = 0; i < left; ++i) blocks.push_back(3 * i);
    const Blocks away = Numbers(3 * left, 65536);
    ASSERT_OK_AND_ASSIGN(const ChangeMap map,
                         Difference(MapOf(COMBINED(std::set_union, blocks, away), kEdgeVolume),
                                    MapOf(away, kEdgeVolume)));
    EXPECT_EQ(BlocksOf(map), blocks);
    EXPECT_EQ(BlocksOf(ValueOf(ChangeMap::FromPortable64(map->portable(), kEdgeVolume))), blocks);
  }
}

// CRoaring before 0.9.8: contains_range() returns true across a missing container.
TEST(ChangeMapTest, ARangeOverAMissingContainerIsNotContained) {
  const ChangeMap map = MapOf(
      COMBINED(std::set_union, Numbers(0, 65536), Numbers(2 * 65536, 3 * 65536)), kEdgeVolume);
  EXPECT_TRUE(map->ContainsRange(0, 65536));
  EXPECT_FALSE(map->ContainsRange(0, 65537));
  EXPECT_FALSE(map->ContainsRange(0, 3 * 65536));
  EXPECT_FALSE(map->ContainsRange(65535, 2 * 65536 + 1));
  EXPECT_FALSE(map->ContainsRange(2 * 65536, 3 * 65536 + 1));
  EXPECT_TRUE(map->ContainsRange(70000, 70000));
}

}  // namespace change_map_test
}  // namespace cbt

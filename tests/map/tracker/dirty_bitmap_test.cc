// The bitmap that trackers mark, against a set of blocks.
#include "map/tracker/dirty_bitmap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

#include "tests/map/maps.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace dirty_bitmap_test {

using test::Blocks;

constexpr uint64_t kBlocks = 3 * 65536 + 77;
constexpr VolumeGeometry kVolume = {kBlocks * 512, 512};

Blocks BlocksOf(const DirtyBitmap& bitmap) {
  return test::BlocksOf(test::ValueOf(bitmap.ToMap(kVolume)));
}

// Blocks around the ends of words, containers and the volume.
std::vector<uint64_t> Edges() {
  std::vector<uint64_t> edges;
  for (const uint64_t around : std::vector<uint64_t>{64, 128, 65536, 2 * 65536, 3 * 65536}) {
    for (uint64_t at = around - 2; at <= around + 2; ++at) edges.push_back(at);
  }
  for (const uint64_t end : {uint64_t{0}, kBlocks - 2}) {
    for (uint64_t at = end; at < end + 2; ++at) edges.push_back(at);
  }
  std::sort(edges.begin(), edges.end());
  return edges;
}

TEST(DirtyBitmapTest, HoldsWhatWasMarkedBetweenAnyEdges) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<DirtyBitmap> bitmap, DirtyBitmap::Create(kBlocks));
  const std::vector<uint64_t> edges = Edges();
  for (const uint64_t begin : edges) {
    for (const uint64_t last : edges) {
      if (last < begin) continue;
      bitmap->Clear();
      EXPECT_FALSE(bitmap->HasAll(begin, last + 1));
      bitmap->Mark(begin, last + 1);
      EXPECT_TRUE(bitmap->HasAll(begin, last + 1)) << begin << ' ' << last;
      if (begin > 0) {
        EXPECT_FALSE(bitmap->HasAll(begin - 1, last + 1)) << begin << ' ' << last;
      }
      if (last + 1 < kBlocks) {
        EXPECT_FALSE(bitmap->HasAll(begin, last + 2)) << begin << ' ' << last;
      }
      Blocks expected;
      for (uint64_t block = begin; block <= last; ++block) expected.push_back(block);
      ASSERT_TRUE(BlocksOf(*bitmap) == expected) << begin << ' ' << last;
    }
  }
  bitmap->Clear();
  EXPECT_TRUE(BlocksOf(*bitmap).empty());
}

// A word with a single bit, whichever it is, is not empty.
TEST(DirtyBitmapTest, TakesEveryBlockThatIsAloneInAMap) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<DirtyBitmap> bitmap, DirtyBitmap::Create(kBlocks));
  std::vector<uint64_t> alone = Edges();
  for (uint64_t block = 65536 + 640; block < 65536 + 640 + 64; ++block) alone.push_back(block);
  for (const uint64_t block : alone) {
    bitmap->Clear();
    bitmap->MarkAll(test::MapOf({block}, kVolume).view());
    ASSERT_EQ(BlocksOf(*bitmap), Blocks{block});
  }
}

TEST(DirtyBitmapTest, AMapIsAddedToWhatWasMarked) {
  test::SeededRandom random(3);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<DirtyBitmap> bitmap, DirtyBitmap::Create(kBlocks));
  for (int round = 0; round < 40; ++round) {
    bitmap->Clear();
    Blocks expected;
    for (int map = 0; map < 2; ++map) {
      const Blocks blocks = test::SomeBlocks(random, {0, 1, 2, 3}, kBlocks);
      bitmap->MarkAll(test::MapOf(blocks, kVolume).view());
      Blocks united;
      std::set_union(expected.begin(), expected.end(), blocks.begin(), blocks.end(),
                     std::back_inserter(united));
      expected = united;
    }
    ASSERT_TRUE(test::SameBlocks(BlocksOf(*bitmap), expected)) << "round " << round;
  }
}

}  // namespace dirty_bitmap_test
}  // namespace cbt

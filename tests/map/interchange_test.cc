// Exchanges bytes with CRoaring. The library itself does not link it.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <roaring/roaring.h>

#include <algorithm>
#include <memory>

#include "cbt/change_map.h"
#include "tests/map/maps.h"
#include "tests/reference/portable_roaring.h"
#include "tests/support/generators.h"
#include "tests/support/status.h"

// Newer versions declare their functions in there.
namespace roaring::api {}
using namespace roaring::api;  // NOLINT(google-build-using-namespace)

namespace cbt {
namespace interchange_test {

using test::Blocks;
using test::BlocksOf;
using test::ValueOf;

// 2^32 blocks.
constexpr VolumeGeometry kVolume = {uint64_t{1} << 44, 4096};

struct Free {
  void operator()(roaring_bitmap_t* bitmap) const { roaring_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<roaring_bitmap_t, Free>;

Bitmap BitmapOf(const Blocks& blocks) {
  Bitmap bitmap(roaring_bitmap_create());
  for (const uint64_t block : blocks) {
    roaring_bitmap_add(bitmap.get(), static_cast<uint32_t>(block));
  }
  return bitmap;
}

std::vector<uint8_t> Serialised(const Bitmap& bitmap) {
  std::vector<uint8_t> bytes(roaring_bitmap_portable_size_in_bytes(bitmap.get()));
  roaring_bitmap_portable_serialize(bitmap.get(), reinterpret_cast<char*>(bytes.data()));
  return bytes;
}

Blocks BlocksOf(const Bitmap& bitmap) {
  std::vector<uint32_t> values(roaring_bitmap_get_cardinality(bitmap.get()));
  roaring_bitmap_to_uint32_array(bitmap.get(), values.data());
  return {values.begin(), values.end()};
}

RC_GTEST_PROP(InterchangeTest, EachReadsWhatTheOtherWrote, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const Blocks blocks = test::SomeBlocks(random, {0, 1, 2, 65534, 65535});
  const Bitmap bitmap = BitmapOf(blocks);
  for (int optimized = 0; optimized < 2; ++optimized) {
    const std::vector<uint8_t> theirs = Serialised(bitmap);
    ChangeMap map = ValueOf(ChangeMap::FromPortable32(theirs, kVolume));
    RC_ASSERT(BlocksOf(map) == blocks);
    RC_ASSERT(ValueOf(map.ToPortable32()) == theirs);
    const size_t before = map->portable().size();
    const bool smaller = ValueOf(map.Optimize());
    RC_ASSERT(smaller == (map->portable().size() < before));
    RC_ASSERT(BlocksOf(map) == blocks);
    roaring_bitmap_run_optimize(bitmap.get());
  }
  const std::vector<uint8_t> ours = ValueOf(test::MapOf(blocks, kVolume).ToPortable32());
  RC_ASSERT(ours.size() <= Serialised(bitmap).size());
  const Bitmap read(roaring_bitmap_portable_deserialize_safe(
      reinterpret_cast<const char*>(ours.data()), ours.size()));
  RC_ASSERT(read != nullptr);
  RC_ASSERT(roaring_bitmap_equals(read.get(), bitmap.get()));
  RC_ASSERT(BlocksOf(read) == blocks);
}

// The set from the specification's repository, with and without runs.
TEST(InterchangeTest, TheSpecificationsExample) {
  Blocks blocks;
  for (uint64_t k = 0; k < 100000; k += 1000) blocks.push_back(k);
  for (uint64_t k = 100000; k < 200000; ++k) blocks.push_back(3 * k);
  for (uint64_t k = 700000; k < 800000; ++k) blocks.push_back(k);
  const Bitmap bitmap = BitmapOf(blocks);
  const std::vector<uint8_t> without_runs = Serialised(bitmap);
  EXPECT_EQ(without_runs.size(), 72616u);
  EXPECT_EQ(BlocksOf(ValueOf(ChangeMap::FromPortable32(without_runs, kVolume))), blocks);
  roaring_bitmap_run_optimize(bitmap.get());
  const std::vector<uint8_t> with_runs = Serialised(bitmap);
  EXPECT_EQ(with_runs.size(), 48056u);
  EXPECT_EQ(BlocksOf(ValueOf(ChangeMap::FromPortable32(with_runs, kVolume))), blocks);
  EXPECT_EQ(ValueOf(test::MapOf(blocks, kVolume).ToPortable32()), with_runs);
}

// Found by a fuzzer: a group that announces runs but has none carries no offsets below four
// containers. That form is not canonical, and the canonical one is larger.
TEST(InterchangeTest, GroupsThatAnnounceRunsAndHoldNoneBecomeCanonical) {
  const std::vector<uint8_t> announced = {
      1,    0,    0, 0, 0, 0, 0, 0,  // one group
      0,    0,    0, 0,              // blocks below 2^32
      0x3b, 0x30, 1, 0,              // runs possible; two containers
      0,                             // none has runs
      0,    0,    0, 0, 5, 0, 0, 0,  // keys 0 and 5, a block each
      0,    0,    0, 0,              // the first block of each container
  };
  ASSERT_OK_AND_ASSIGN(ChangeMap map, ChangeMap::FromPortable64(announced, kVolume));
  const Blocks blocks = {0, 5 << 16};
  EXPECT_EQ(BlocksOf(map), blocks);
  const absl::StatusOr<bool> smaller = map.Optimize();
  ASSERT_OK(smaller);
  EXPECT_FALSE(*smaller);
  EXPECT_EQ(BlocksOf(map), blocks);
  const ChangeMap ours = test::MapOf(blocks, kVolume);
  EXPECT_TRUE(std::ranges::equal(map->portable(), ours->portable()));
  EXPECT_EQ(map->portable().size(), announced.size() + 11);
}

// Written byte by byte from the specification.
TEST(InterchangeTest, BytesOfASmallMap) {
  const ChangeMap map =
      test::MapOf({1, 3, 65536, 65537, 65538, 65539, uint64_t{1} << 32}, {uint64_t{1} << 45, 4096});
  const std::vector<uint8_t> want = {
      2,    0,    0, 0, 0, 0, 0, 0,  // two groups
      0,    0,    0, 0,              // the first: blocks below 2^32
      0x3b, 0x30, 1, 0,              // runs possible; two containers
      2,                             // the second one
      0,    0,    1, 0,              // key 0, 2 blocks
      1,    0,    3, 0,              // key 1, 4 blocks
      1,    0,    3, 0,              // an array
      1,    0,    0, 0, 3, 0,        // one run: 0 and three more
      1,    0,    0, 0,              // the second: from 2^32 on
      0x3a, 0x30, 0, 0, 1, 0, 0, 0,  // no runs; one container
      0,    0,    0, 0,              // key 0, 1 block
      16,   0,    0, 0,              // its offset
      0,    0,
  };
  EXPECT_EQ(std::vector<uint8_t>(map->portable().begin(), map->portable().end()), want);
  EXPECT_EQ(*reference::PortableRoaring::Decode(want), BlocksOf(map));
  EXPECT_EQ(map.ToPortable32().status().code(), absl::StatusCode::kOutOfRange);
}

TEST(InterchangeTest, NoBlocksAtAll) {
  const Bitmap none = BitmapOf({});
  ASSERT_OK_AND_ASSIGN(const ChangeMap map, ChangeMap::FromPortable32(Serialised(none), kVolume));
  EXPECT_TRUE(map->empty());
  EXPECT_EQ(ValueOf(map.ToPortable32()), Serialised(none));
  EXPECT_EQ(ValueOf(ValueOf(ChangeMap::Empty(kVolume)).ToPortable32()), Serialised(none));
  EXPECT_TRUE(map.view() == ValueOf(ChangeMap::Empty(kVolume)).view());
}

}  // namespace interchange_test
}  // namespace cbt

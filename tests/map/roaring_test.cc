// Converts change maps to CRoaring's bitmaps and back, every type in both directions.
#include "cbt/bridge/roaring.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "cbt/units.h"
#include "tests/map/maps.h"
#include "tests/support/generators.h"
#include "tests/support/status.h"

namespace cbt {
namespace roaring_test {

using test::Blocks;
using test::BlocksOf;
using test::ValueOf;

using Names32 = roaring_names::Bitmap32;
using Class32 = roaring_names::Class32;
using Class64 = roaring_names::Class64;

// 2^32 and 2^36 blocks.
constexpr VolumeGeometry kSmall = {.capacity = 16 * kTiB, .granularity = 4 * kKiB};
constexpr VolumeGeometry kLarge = {.capacity = 256 * kTiB, .granularity = 4 * kKiB};

// The values of a bitmap according to CRoaring.
std::vector<uint64_t> ValuesOf(const RoaringOwner<Names32>& bitmap) {
  std::vector<uint32_t> values(roaring_names::Cardinality(*bitmap));
  roaring_names::ToArray(*bitmap, values.data());
  return {values.begin(), values.end()};
}
std::vector<uint64_t> ValuesOf(const Class32& bitmap) {
  std::vector<uint32_t> values(bitmap.cardinality());
  bitmap.toUint32Array(values.data());
  return {values.begin(), values.end()};
}
std::vector<uint64_t> ValuesOf(const Class64& bitmap) {
  std::vector<uint64_t> values(bitmap.cardinality());
  bitmap.toUint64Array(values.data());
  return values;
}

#ifdef CBT_HAS_ROARING64
using Names64 = roaring_names::Bitmap64;

std::vector<uint64_t> ValuesOf(const RoaringOwner<Names64>& bitmap) {
  std::vector<uint64_t> values(roaring_names::Cardinality(*bitmap));
  roaring_names::ToArray(*bitmap, values.data());
  return values;
}
const Names64& BitmapOf(const RoaringOwner<Names64>& owner) { return *owner; }
#endif

const Names32& BitmapOf(const RoaringOwner<Names32>& owner) { return *owner; }
template <typename T>
const T& BitmapOf(const T& bitmap) {
  return bitmap;
}

template <typename Bitmap>
void GoesThereAndBack(const Blocks& blocks, const VolumeGeometry& volume) {
  const ChangeMap map = test::MapOf(blocks, volume);
  const auto bitmap = ValueOf(ToRoaring<Bitmap>(map));
  RC_ASSERT(ValuesOf(bitmap) == std::vector<uint64_t>(blocks.begin(), blocks.end()));
  const ChangeMap back = ValueOf(FromRoaring(BitmapOf(bitmap), volume));
  RC_ASSERT(back.view() == map.view());
}

RC_GTEST_PROP(RoaringTest, EveryTypeGoesThereAndBack, ()) {
  std::mt19937_64 random = test::AnyRandom();
  const Blocks blocks = test::SomeBlocks(random, {0, 1, 2, 65534, 65535});
  GoesThereAndBack<Names32>(blocks, kSmall);
  GoesThereAndBack<Class32>(blocks, kSmall);
  GoesThereAndBack<Class64>(blocks, kSmall);
  Blocks large = blocks;
  for (const uint64_t block : blocks) {
    large.insert(large.end(), block + (uint64_t{1} << 32) * (1 + random() % 15));
  }
  const std::set<uint64_t> sorted(large.begin(), large.end());
  GoesThereAndBack<Class64>(Blocks(sorted.begin(), sorted.end()), kLarge);
#ifdef CBT_HAS_ROARING64
  GoesThereAndBack<Names64>(blocks, kSmall);
  GoesThereAndBack<Names64>(Blocks(sorted.begin(), sorted.end()), kLarge);
#endif
}

TEST(RoaringTest, EmptyAndFullMaps) {
  const ChangeMap empty = ValueOf(ChangeMap::Empty(kSmall));
  EXPECT_TRUE(ValueOf(ToRoaring<Class64>(empty)).isEmpty());
  EXPECT_EQ(ValueOf(FromRoaring(Class64(), kSmall)).view(), empty.view());
  const ChangeMap full =
      ValueOf(ChangeMap::Full({.capacity = 256 * kMiB, .granularity = 4 * kKiB}));
  EXPECT_EQ(ValueOf(ToRoaring<Class32>(full)).cardinality(), 65536u);
  EXPECT_EQ(ValueOf(ToRoaring<Class64>(full)).cardinality(), 65536u);
}

TEST(RoaringTest, WhatDoesNotFitIsRefused) {
  const ChangeMap map = test::MapOf({5, uint64_t{1} << 32}, kLarge);
  EXPECT_EQ(ToRoaring<Class32>(map).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ToRoaring<Names32>(map).status().code(), absl::StatusCode::kOutOfRange);
  Class64 past;
  past.add(uint64_t{1} << 32);
  EXPECT_EQ(FromRoaring(past, kSmall).status().code(), absl::StatusCode::kInvalidArgument);
  Class32 one;
  one.add(100u);
  EXPECT_EQ(FromRoaring(one, {.capacity = 100 * 4096, .granularity = 4096}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// CRoaring accepts values in any order, so its bytes are validated like any others.
TEST(RoaringTest, ADamagedBitmapIsRefused) {
  Class32 good;
  good.add(5u);
  good.add(9u);
  std::vector<char> bytes(good.getSizeInBytes());
  good.write(bytes.data());
  const size_t values = bytes.size() - 4;  // two 16-bit values, at the end
  std::swap_ranges(bytes.begin() + static_cast<ptrdiff_t>(values),
                   bytes.begin() + static_cast<ptrdiff_t>(values) + 2,
                   bytes.begin() + static_cast<ptrdiff_t>(values) + 2);
  const RoaringOwner<Names32> damaged(roaring_names::Read32(bytes.data(), bytes.size()));
  ASSERT_NE(damaged, nullptr);
  EXPECT_EQ(FromRoaring(*damaged, kSmall).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_OK(FromRoaring(good, kSmall));
}

// With and without run lists.
TEST(RoaringTest, BitmapsInAnyShape) {
  Class64 bitmap;
  for (uint64_t i = 0; i < 100'000; ++i) bitmap.add(i * 3 % 200'000);
  const ChangeMap before = ValueOf(FromRoaring(bitmap, kSmall));
  bitmap.runOptimize();
  const ChangeMap after = ValueOf(FromRoaring(bitmap, kSmall));
  EXPECT_EQ(before.view(), after.view());
  EXPECT_EQ(after->cardinality(), bitmap.cardinality());
}

}  // namespace roaring_test
}  // namespace cbt

// Portable roaring bytes from strangers.
#include "map/portable_index.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "cbt/change_map.h"
#include "map/maps.h"
#include "reference/portable_roaring.h"
#include "support/generators.h"

namespace cbt {
namespace {

using test::Blocks;
using test::BlocksOf;
using testing::Test;

constexpr VolumeGeometry kVolume = {uint64_t{1} << 50, 512};

std::vector<uint8_t> Bytes(const ChangeMapView& map) {
  return {map.portable().begin(), map.portable().end()};
}

// The verdict of the oracle and ours are the same, and so are the blocks.
void Compare(const std::vector<uint8_t>& bytes) {
  const auto want = reference::PortableRoaring::Decode(bytes);
  const absl::StatusOr<ChangeMapView> got = ChangeMapView::Create(bytes, kVolume);
  if (want.has_value() && (want->empty() || want->back() < kVolume.capacity / 512)) {
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(BlocksOf(*got), *want);
    ASSERT_EQ(got->cardinality(), want->size());
    ASSERT_EQ(got->Statistics().blocks, want->size());
  } else {
    ASSERT_FALSE(got.ok());
    const absl::StatusCode code =
        want.has_value() ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kDataLoss;
    // A bitmap that is damaged may also have a block too many.
    if (want.has_value()) {
      ASSERT_EQ(got.status().code(), code);
    }
    ASSERT_NE(got.status().message().find("offset "), std::string::npos) << got.status();
  }
}

// Arrays, runs and a bitset, in two groups; small, so that every byte of it can be turned around.
std::vector<uint8_t> SmallMap(bool bitset) {
  Blocks blocks = {1, 5, 6, 9};
  for (uint64_t b = 65536; b < 65536 + 300; ++b) blocks.push_back(b);
  for (uint64_t b = 66000; b < 66100; ++b) blocks.push_back(b);
  for (uint64_t i = 0; bitset && i < 4100; ++i) blocks.push_back((uint64_t{3} << 16) + 3 * i);
  blocks.push_back(uint64_t{4} << 16);
  blocks.push_back((uint64_t{5} << 16) + 77);
  blocks.push_back(uint64_t{1} << 33);
  return Bytes(test::MapOf(blocks, kVolume));
}

TEST(PortableIndexTest, EveryByteTurnedAround) {
  const std::vector<uint8_t> sound = SmallMap(false);
  ASSERT_LT(sound.size(), 200u);
  Compare(sound);
  for (size_t at = 0; at < sound.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::vector<uint8_t> bytes = sound;
      bytes[at] = static_cast<uint8_t>(value);
      Compare(bytes);
      if (HasFatalFailure()) FAIL() << "byte " << at << " = " << value;
    }
  }
}

TEST(PortableIndexTest, EveryLength) {
  const std::vector<uint8_t> sound = SmallMap(true);
  for (size_t size = 0; size < sound.size(); ++size) {
    const std::vector<uint8_t> bytes(sound.begin(), sound.begin() + static_cast<long>(size));
    ASSERT_EQ(ChangeMapView::Create(bytes, kVolume).status().code(), absl::StatusCode::kDataLoss)
        << size;
  }
  std::vector<uint8_t> longer = sound;
  longer.push_back(0);
  EXPECT_EQ(ChangeMapView::Create(longer, kVolume).status().code(), absl::StatusCode::kDataLoss);
}

RC_GTEST_PROP(PortableIndexTest, JudgesMutationsLikeTheOracle, ()) {
  std::mt19937_64 random = test::AnyRandom();
  std::vector<uint8_t> bytes =
      Bytes(test::MapOf(test::SomeBlocks(random, {0, 1, 2, 65536, 65537}), kVolume));
  const uint64_t changes = 1 + random() % 3;
  for (uint64_t i = 0; i < changes; ++i) {
    // The tables in front are where structure is.
    const size_t at =
        random() % (random() % 2 == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 80));
    switch (random() % 4) {
      case 0:
        bytes[at] = static_cast<uint8_t>(bytes[at] ^ 1u << random() % 8);
        break;
      case 1:
        bytes[at] = static_cast<uint8_t>(random());
        break;
      case 2:
        bytes.erase(bytes.begin() + static_cast<long>(at));
        break;
      case 3:
        bytes.insert(bytes.begin() + static_cast<long>(at), static_cast<uint8_t>(random()));
        break;
    }
    if (bytes.empty()) break;
  }
  Compare(bytes);
  RC_ASSERT(!Test::HasFatalFailure());
}

// What CRoaring's own checked deserialiser lets pass.
TEST(PortableIndexTest, NamesWhatIsWrong) {
  const auto array = [](std::vector<uint16_t> values) {
    std::vector<uint8_t> bytes = {1,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0x3a,
                                  0x30,
                                  0,
                                  0,
                                  1,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  static_cast<uint8_t>(values.size() - 1),
                                  0,
                                  16,
                                  0,
                                  0,
                                  0};
    for (const uint16_t value : values) {
      bytes.push_back(static_cast<uint8_t>(value));
      bytes.push_back(static_cast<uint8_t>(value >> 8));
    }
    return bytes;
  };
  const auto why = [](const std::vector<uint8_t>& bytes) {
    return std::string(ChangeMapView::Create(bytes, kVolume).status().message());
  };
  EXPECT_EQ(why(array({1, 5, 9})), "");
  EXPECT_EQ(why(array({9, 5, 1})), "offset 28: an array that does not ascend");
  EXPECT_EQ(why(array({5, 5, 5})), "offset 28: an array that does not ascend");
  const auto runs = [](std::vector<uint16_t> pairs, unsigned cardinality) {
    std::vector<uint8_t> bytes = {1,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0,
                                  0x3b,
                                  0x30,
                                  0,
                                  0,
                                  1,
                                  0,
                                  0,
                                  static_cast<uint8_t>(cardinality - 1),
                                  static_cast<uint8_t>((cardinality - 1) >> 8),
                                  static_cast<uint8_t>(pairs.size() / 2),
                                  0};
    for (const uint16_t value : pairs) {
      bytes.push_back(static_cast<uint8_t>(value));
      bytes.push_back(static_cast<uint8_t>(value >> 8));
    }
    return bytes;
  };
  EXPECT_EQ(why(runs({1, 2, 9, 3}, 7)), "");
  EXPECT_EQ(why(runs({1, 2, 9, 3}, 8)),
            "offset 21: runs that hold another number of blocks than they say");
  for (const std::vector<uint16_t>& wrong :
       {std::vector<uint16_t>{1, 2, 4, 3}, {1, 2, 3, 3}, {9, 3, 1, 2}, {65530, 65535, 1, 1}}) {
    EXPECT_EQ(why(runs(wrong, 7)), "offset 21: runs that touch, overlap or leave their container");
  }
  EXPECT_EQ(why(runs({}, 7)), "offset 21: a list of no runs");
}

// What a few bytes claim takes neither memory nor time.
TEST(PortableIndexTest, LargeClaimsOfSmallFilesCostNothing) {
  std::vector<uint8_t> bytes(100, 0xff);  // 2^64 - 1 groups
  EXPECT_EQ(ChangeMapView::Create(bytes, kVolume).status().code(), absl::StatusCode::kDataLoss);
  // One group of 65536 containers, with runs and without.
  for (const std::vector<uint8_t>& cookie :
       {std::vector<uint8_t>{0x3b, 0x30, 0xff, 0xff}, {0x3a, 0x30, 0, 0, 0, 0, 1, 0}}) {
    bytes.assign({1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    bytes.insert(bytes.end(), cookie.begin(), cookie.end());
    bytes.resize(100);
    EXPECT_EQ(ChangeMapView::Create(bytes, kVolume).status().code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(ChangeMapView::Create(bytes, {kMaxCapacity, 1}).status().code(),
              absl::StatusCode::kDataLoss);
  }
}

TEST(PortableIndexTest, RefusesBlocksPastTheVolume) {
  for (const uint64_t block : {65536u, 65537u, 200000u}) {
    const ChangeMap map = test::MapOf({1, block}, kVolume);
    EXPECT_TRUE(ChangeMapView::Create(map->portable(), {(block + 1) * 512, 512}).ok());
    EXPECT_TRUE(ChangeMapView::Create(map->portable(), {block * 512 + 1, 512}).ok());
    EXPECT_EQ(ChangeMapView::Create(map->portable(), {block * 512, 512}).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ChangeMapView::Create(map->portable(), {0, 512}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace cbt

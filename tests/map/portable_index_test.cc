// Portable roaring bytes from an untrusted writer.
#include "map/portable_index.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cbt/change_map.h"
#include "cbt/units.h"
#include "tests/map/maps.h"
#include "tests/reference/portable_roaring.h"
#include "tests/support/generators.h"
#include "tests/support/status.h"

namespace cbt {
namespace portable_index_test {

using test::Blocks;
using test::BlocksOf;
using testing::Test;

constexpr VolumeGeometry kVolume = {kPiB, 512};

std::vector<uint8_t> Bytes(const ChangeMapView& map) {
  return {map.portable().begin(), map.portable().end()};
}

// Our verdict and our blocks must equal the oracle's.
void Compare(const std::vector<uint8_t>& bytes) {
  const auto want = reference::PortableRoaring::Decode(bytes);
  const absl::StatusOr<ChangeMapView> got = ChangeMapView::Create(bytes, kVolume);
  if (want.has_value() && (want->empty() || want->back() < kVolume.capacity / 512)) {
    ASSERT_OK(got);
    ASSERT_EQ(BlocksOf(*got), *want);
    ASSERT_EQ(got->cardinality(), want->size());
    ASSERT_EQ(got->Statistics().blocks, want->size());
  } else {
    ASSERT_FALSE(got.ok());
    const absl::StatusCode code =
        want.has_value() ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kDataLoss;
    // A damaged bitmap may also contain an extra block.
    if (want.has_value()) {
      ASSERT_EQ(got.status().code(), code);
    }
    ASSERT_NE(got.status().message().find("offset "), std::string::npos) << got.status();
  }
}

// Arrays, runs and a bitset in two groups; small enough to damage every byte.
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
    // Most of the structure is in the tables at the front.
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

// CRoaring's own checked deserialiser accepts these.
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
  EXPECT_EQ(why(array({9, 5, 1})), "offset 28: the array is not ascending");
  EXPECT_EQ(why(array({5, 5, 5})), "offset 28: the array is not ascending");
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
  EXPECT_EQ(why(runs({1, 2, 9, 3}, 8)), "offset 21: the runs do not match their cardinality");
  for (const std::vector<uint16_t>& wrong :
       {std::vector<uint16_t>{1, 2, 4, 3}, {1, 2, 3, 3}, {9, 3, 1, 2}, {65530, 65535, 1, 1}}) {
    EXPECT_EQ(why(runs(wrong, 7)), "offset 21: runs touch, overlap or leave their container");
  }
  EXPECT_EQ(why(runs({}, 7)), "offset 21: empty list of runs");
}

// The offset of the first byte of the wrong table entry.
TEST(PortableIndexTest, NamesThePlaceOfAWrongEntry) {
  const std::vector<uint8_t> sound = SmallMap(true);
  const auto place = [&](size_t at) {
    std::vector<uint8_t> bytes = sound;
    bytes[at] ^= 1u;
    const std::string why(ChangeMapView::Create(bytes, kVolume).status().message());
    return why.substr(0, why.find(':'));
  };
  const auto offset = [](size_t at) { return absl::StrCat("offset ", at); };
  // The group count is followed by the first group's upper half, its cookie, the run flags of five
  // containers, their keys and cardinalities, and their offsets.
  constexpr size_t kCookie = 12;
  constexpr size_t kEntries = 17;
  constexpr size_t kOffsets = kEntries + 5 * 4;
  EXPECT_EQ(place(kCookie), offset(kCookie));
  EXPECT_EQ(place(kEntries + 4), offset(kEntries + 4));  // a key equal to the one before
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(place(kOffsets + 4 * i), offset(kOffsets + 4 * i));
}

// Claims of a few bytes cost neither memory nor time.
TEST(PortableIndexTest, LargeClaimsOfSmallFilesCostNothing) {
  std::vector<uint8_t> bytes(100, 0xff);  // 2^64 - 1 groups
  EXPECT_EQ(ChangeMapView::Create(bytes, kVolume).status().code(), absl::StatusCode::kDataLoss);
  // One group of 65536 containers, with and without runs.
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

// Reports one byte as damaged.
class OneBadByte final : public ByteGuard {
 public:
  explicit OneBadByte(uint64_t at) : at_(at) {}
  absl::Status Check(uint64_t begin, uint64_t end) const override {
    return begin <= at_ && at_ < end ? absl::DataLossError("the bad byte") : absl::OkStatus();
  }

 private:
  const uint64_t at_;
};

// The tables must be checked when the index is made and the containers when they are loaded: no
// byte is trusted unchecked. `tables`: the number of bytes needed to make the index.
void ExpectEveryByteIsAskedFor(const std::vector<uint8_t>& bytes, size_t tables) {
  const uint64_t blocks = kVolume.capacity / 512;
  size_t seen = 0;
  for (uint64_t at = 0; at < bytes.size(); ++at) {
    const auto index = PortableIndex::Parse(bytes, blocks, std::make_shared<OneBadByte>(at));
    if (!index.ok()) {
      ++seen;
      ASSERT_EQ(index.status().message(), "the bad byte") << at;
      continue;
    }
    size_t refused = 0;
    for (size_t i = 0; i < (*index)->size(); ++i) {
      const absl::StatusOr<Container> container = (*index)->Load(i);
      if (container.ok()) continue;
      ++refused;
      ASSERT_EQ(container.status().message(), "the bad byte") << at;
    }
    ASSERT_EQ(refused, 1u) << at;
    ASSERT_FALSE((*index)->CheckAll().ok());
    ASSERT_FALSE((*index)->checked());
  }
  EXPECT_EQ(seen, tables);
}

TEST(PortableIndexTest, AsksTheGuardAboutEveryByte) {
  // The number of groups; a group with flags and five containers; one with one.
  ExpectEveryByteIsAskedFor(SmallMap(true), 8 + (4 + 4 + 1 + 5 * 8) + (4 + 8 + 8));
  // With few containers there is no offset table: the end of a run list is found by parsing it.
  Blocks runs;
  for (uint64_t b = 0; b < 300; ++b) runs.push_back(100 + b + b / 150 * 50);
  ExpectEveryByteIsAskedFor(Bytes(test::MapOf(runs, kVolume)), 8 + (4 + 4 + 1 + 4 + 2));
}

TEST(PortableIndexTest, FindsContainersByKey) {
  const std::vector<uint8_t> bytes = Bytes(test::MapOf({uint64_t{1} << 33}, kVolume));
  ASSERT_OK_AND_ASSIGN(const auto index, PortableIndex::Parse(bytes, kVolume.capacity / 512));
  ASSERT_EQ(index->size(), 1u);
  EXPECT_TRUE(index->FirstGroup().empty());
  EXPECT_TRUE(index->HasMoreGroups());
  EXPECT_EQ(index->LowerBound(0), 0u);
  EXPECT_EQ(index->LowerBound(uint64_t{2} << 16), 0u);
  EXPECT_EQ(index->LowerBound((uint64_t{2} << 16) + 1), 1u);
  // A key whose upper half exceeds 32 bits must not match by its lower bits.
  EXPECT_EQ(index->LowerBound(uint64_t{1} << 48), 1u);
  EXPECT_EQ(index->LowerBound(UINT64_MAX), 1u);
  ASSERT_OK(index->CheckAll());
  EXPECT_EQ(index->Load(0)->cardinality, 1u);
}

// Container offsets have 32 bits; the end of the last container needs none.
TEST(PortableIndexTest, RefusesABitmapOfMoreThan4GiB) {
  constexpr size_t kSize = (size_t{1} << 32) + 4096;
  void* const memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const bytes = static_cast<uint8_t*>(memory);
  const auto put = [bytes](size_t at, auto value) {
    std::memcpy(bytes + at, &value, sizeof(value));
  };
  put(0, uint64_t{1});                  // one group,
  put(12, uint32_t{12347 | 3u << 16});  // four containers,
  put(16, uint8_t{15});                 // all of them runs
  for (uint16_t i = 0; i < 4; ++i) {
    put(17 + size_t{4} * i, i);
    put(19 + size_t{4} * i, uint16_t{0});
  }
  // Three containers. The last is so long that the fourth would start 9 bytes below 4 GiB.
  const uint32_t offsets[] = {37, 43, 49, UINT32_MAX - 8};
  for (size_t i = 0; i < 4; ++i) put(33 + 4 * i, offsets[i]);
  const size_t last = 12 + size_t{offsets[3]};
  for (const uint16_t runs : {uint16_t{1}, uint16_t{2}}) {
    put(last, runs);
    const size_t size = last + 2 + size_t{4} * runs;
    ASSERT_LE(size, kSize);
    const auto index = PortableIndex::Parse({bytes, size}, kVolume.capacity / 512);
    if (runs == 1) {
      EXPECT_OK(index);
    } else {
      EXPECT_EQ(index.status(), absl::DataLossError("offset 12: a group of more than 4 GiB"));
    }
  }
  munmap(memory, kSize);
}

TEST(PortableIndexTest, RefusesBlocksPastTheVolume) {
  for (const uint64_t block : {65536u, 65537u, 200000u}) {
    const ChangeMap map = test::MapOf({1, block}, kVolume);
    EXPECT_OK(ChangeMapView::Create(map->portable(), {(block + 1) * 512, 512}));
    EXPECT_OK(ChangeMapView::Create(map->portable(), {block * 512 + 1, 512}));
    EXPECT_EQ(ChangeMapView::Create(map->portable(), {block * 512, 512}).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ChangeMapView::Create(map->portable(), {0, 512}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace portable_index_test
}  // namespace cbt

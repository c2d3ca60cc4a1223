// Sources that cut blocks themselves (ExtentCursor::ReturnBlocks), checked against the definition:
// every block that contains a reported byte, once, whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/bitmap.h"
#include "cbt/change_map.h"
#include "cbt/transform.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace blocks_test {

using test::SeededRandom;
using test::ValueOf;

using Offsets = std::vector<uint64_t>;

// The offsets of the blocks at or after `from`.
Offsets Expected(const std::vector<bool>& bits, const VolumeGeometry& geometry, uint64_t block_size,
                 uint64_t from) {
  Offsets offsets;
  for (uint64_t bit = 0; bit < bits.size(); ++bit) {
    if (!bits[bit]) continue;
    const uint64_t begin = bit * geometry.granularity;
    const uint64_t end = std::min(begin + geometry.granularity, geometry.capacity);
    for (uint64_t block = begin / block_size; block * block_size < end; ++block) {
      const uint64_t offset = block * block_size;
      if (block >= from / block_size && (offsets.empty() || offset > offsets.back())) {
        offsets.push_back(offset);
      }
    }
  }
  return offsets;
}

// Reads to the end. The coverage must follow the extents.
void ExpectBlocks(ExtentCursor& cursor, uint64_t block_size, size_t batch_capacity,
                  const Offsets& want) {
  ExtentBatch batch(batch_capacity);
  Offsets got;
  for (;;) {
    const absl::StatusOr<Step> step = cursor.Next(batch);
    ASSERT_OK(step);
    for (size_t i = 0; i < batch.size(); ++i) {
      ASSERT_EQ(batch[i].length, block_size);
      got.push_back(batch[i].offset);
    }
    if (!got.empty()) {
      ASSERT_GE(cursor.covered(), std::min(got.back() + block_size, cursor.capacity()));
    }
    if (got.size() < want.size()) {
      ASSERT_LE(cursor.covered(), want[got.size()]) << "covered past the next block";
    }
    if (*step == Step::kComplete) break;
  }
  ASSERT_EQ(got, want);
}

using Open = std::function<std::unique_ptr<ExtentCursor>()>;

void ExpectBlocksFromEverywhere(const Open& open, const std::vector<bool>& bits,
                                uint64_t block_size, SeededRandom& random) {
  auto cursor = ValueOf(ToBlocks(open(), block_size));
  ASSERT_EQ(cursor->granularity(), block_size);
  const auto source = open();
  for (int round = 0; round < 5; ++round) {
    constexpr size_t kCapacities[] = {1, 2, 3, 63, 64, 65, 100, 1024};
    const size_t batch_capacity = kCapacities[random() % std::size(kCapacities)];
    const uint64_t from = round == 0 ? 0 : random() % source->capacity();
    SCOPED_TRACE(
        absl::StrCat("blocks of ", block_size, " from ", from, ", batches of ", batch_capacity));
    if (round > 0) {
      // Also in the middle of an answer.
      ExtentBatch batch(batch_capacity);
      ASSERT_OK(cursor->Next(batch));
      ASSERT_OK(cursor->Seek(from));
    }
    ExpectBlocks(*cursor, block_size, batch_capacity,
                 Expected(bits, source->geometry(), block_size, from));
    if (testing::Test::HasFatalFailure()) return;
    ASSERT_OK(cursor->Seek(0));
  }
}

std::vector<bool> SomeBits(uint64_t count, SeededRandom& random) {
  std::vector<bool> bits(count);
  const uint64_t kind = random() % 4;
  bool value = random() % 2 == 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (kind == 0) bits[i] = random() % 25 == 0;
    if (kind == 1) bits[i] = random() % 2 == 0;
    if (kind == 2) bits[i] = random() % 3000 == 0;
    if (kind == 3) bits[i] = value = random() % 150 == 0 ? !value : value;
  }
  return bits;
}

std::vector<uint8_t> Pack(const std::vector<bool>& bits, size_t first_bit, BitmapFormat format) {
  std::vector<uint8_t> bytes((first_bit + bits.size() + 7) / 8, 0xa5);
  for (size_t i = 0; i < bits.size(); ++i) {
    const size_t at = first_bit + i;
    const bool reverse = format.order == BitmapFormat::BitOrder::kMostSignificantFirst;
    const size_t place = reverse ? 7 - at % 8 : at % 8;
    const unsigned bit = bits[i] != format.inverted ? 1 : 0;
    bytes[at / 8] = static_cast<uint8_t>((bytes[at / 8] & ~(1u << place)) | bit << place);
  }
  return bytes;
}

// Blocks of one bit, a few bits, many bits; not a power of two; smaller than a bit.
std::vector<uint64_t> BlockSizes(uint64_t granularity) {
  std::vector<uint64_t> sizes = {
      granularity,      2 * granularity,  4 * granularity, 8 * granularity,   16 * granularity,
      32 * granularity, 64 * granularity, 3 * granularity, 128 * granularity, 1000};
  if (granularity % 4 == 0) sizes.push_back(granularity / 4);
  return sizes;
}

constexpr uint64_t kGranularities[] = {1, 100, 512, 4096};

TEST(BlocksTest, OfBitmapsOfEveryLayout) {
  SeededRandom random(1);
  for (int round = 0; round < 40; ++round) {
    const uint64_t granularity = kGranularities[random() % std::size(kGranularities)];
    const uint64_t count = 1 + random() % (granularity == 1 ? 4000 : 20'000);
    const VolumeGeometry geometry = {.capacity = count * granularity - random() % granularity,
                                     .granularity = granularity};
    const std::vector<bool> bits = SomeBits(count, random);
    const size_t first_bit = random() % 3 == 0 ? random() % 64 : 0;
    BitmapFormat format;
    format.inverted = random() % 3 == 0;
    if (random() % 3 == 0) format.order = BitmapFormat::BitOrder::kMostSignificantFirst;
    SCOPED_TRACE(absl::StrCat("round ", round, ", first bit ", first_bit));
    const std::vector<uint8_t> bytes = Pack(bits, first_bit, format);
    const BitmapView view = ValueOf(BitmapView::Create(bytes, first_bit, count, format));
    for (const uint64_t block_size : BlockSizes(granularity)) {
      ExpectBlocksFromEverywhere([&] { return ValueOf(MakeBorrowedBitmapCursor(view, geometry)); },
                                 bits, block_size, random);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(BlocksTest, OfTwoBitmaps) {
  SeededRandom random(2);
  for (int round = 0; round < 30; ++round) {
    const uint64_t count = 1 + random() % 10'000;
    const VolumeGeometry geometry = {.capacity = count * 512 - random() % 512, .granularity = 512};
    const std::vector<bool> a = SomeBits(count, random);
    const std::vector<bool> b = SomeBits(count, random);
    const std::vector<uint8_t> bytes_a = Pack(a, 0, {});
    const std::vector<uint8_t> bytes_b = Pack(b, 0, {});
    const BitmapView view_a = ValueOf(BitmapView::Create(bytes_a, 0, count));
    const BitmapView view_b = ValueOf(BitmapView::Create(bytes_b, 0, count));
    for (const BitmapOp op : {BitmapOp::kXor, BitmapOp::kAndNot, BitmapOp::kOr, BitmapOp::kAnd}) {
      std::vector<bool> bits(count);
      for (uint64_t i = 0; i < count; ++i) {
        bits[i] = op == BitmapOp::kXor      ? a[i] != b[i]
                  : op == BitmapOp::kAndNot ? b[i] && !a[i]
                  : op == BitmapOp::kOr     ? a[i] || b[i]
                                            : a[i] && b[i];
      }
      for (const uint64_t block_size : {512U, 1024U, 4096U, 32'768U}) {
        ExpectBlocksFromEverywhere(
            [&] { return ValueOf(MakeBorrowedBitmapCursor(view_a, view_b, op, geometry)); }, bits,
            block_size, random);
        if (HasFatalFailure()) FAIL() << "round " << round;
      }
    }
  }
}

TEST(BlocksTest, OfChangeMapsAndTheirUnions) {
  SeededRandom random(3);
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const uint64_t granularity = kGranularities[1 + random() % 3];
    // Several containers of each kind.
    const uint64_t count = 1 + random() % 300'000;
    const VolumeGeometry geometry = {.capacity = count * granularity - random() % granularity,
                                     .granularity = granularity};
    std::vector<std::vector<bool>> bits;
    std::vector<ChangeMap> maps;
    for (int i = 0; i < 2; ++i) {
      bits.push_back(SomeBits(count, random));
      const std::vector<uint8_t> bytes = Pack(bits.back(), 0, {});
      maps.push_back(
          ValueOf(ChangeMap::FromBitmap(ValueOf(BitmapView::Create(bytes, 0, count)), geometry)));
    }
    // As the map's own, of several up to a container's worth, of more, and of no power of two.
    const uint64_t sizes[] = {1, 2, 4, 16, 64, 128, 512, 1024, 2048, 3};
    for (const uint64_t blocks : sizes) {
      ExpectBlocksFromEverywhere([&] { return MakeChangeMapCursor(maps[0]); }, bits[0],
                                 blocks * granularity, random);
      if (HasFatalFailure()) return;
    }
    std::vector<bool> both(count);
    for (uint64_t i = 0; i < count; ++i) both[i] = bits[0][i] || bits[1][i];
    for (const uint64_t blocks : {1u, 8u, 256u}) {
      ExpectBlocksFromEverywhere([&] { return ValueOf(MakeUnionCursor(maps)); }, both,
                                 blocks * granularity, random);
      if (HasFatalFailure()) return;
    }
  }
}

// Runs too short and too long for the transform's fast paths, from a source that only returns
// extents.
TEST(BlocksTest, OfExtents) {
  SeededRandom random(4);
  for (int round = 0; round < 40; ++round) {
    const uint64_t count = 1 + random() % 20'000;
    const VolumeGeometry geometry = {.capacity = count * 512 - random() % 512, .granularity = 512};
    const std::vector<bool> bits = SomeBits(count, random);
    const std::vector<uint8_t> bytes = Pack(bits, 0, {});
    const BitmapView view = ValueOf(BitmapView::Create(bytes, 0, count));
    const Open open = [&] {
      return ValueOf(Coalesce(ValueOf(MakeBorrowedBitmapCursor(view, geometry))));
    };
    for (const uint64_t block_size : {512u, 1024u, 8192u, 256u, 128u, 64u, 700u}) {
      ExpectBlocksFromEverywhere(open, bits, block_size, random);
      if (HasFatalFailure()) FAIL() << "round " << round;
    }
  }
}

}  // namespace blocks_test
}  // namespace cbt

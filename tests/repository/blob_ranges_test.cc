#include "repository/blob_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace cbt::repository {
namespace blob_ranges_test {

WantedBlob Blob(uint8_t pack, uint32_t offset, uint32_t length, uint32_t number) {
  WantedBlob blob{.number = number};
  blob.place.pack.bytes[0] = pack;
  blob.place.blob.offset = offset;
  blob.place.blob.length = length;
  return blob;
}

TEST(BlobRanges, JoinNeighboursOfOnePack) {
  constexpr uint32_t kGap = kMaxGapBytes;
  std::vector<WantedBlob> blobs = {Blob(2, 100, 100, 0), Blob(1, 200, 50, 1), Blob(1, 0, 200, 2),
                                   Blob(1, 250 + kGap, 10, 3),
                                   // Farther away by one byte.
                                   Blob(1, 260 + 2 * kGap + 1, 10, 4)};
  const std::vector<BlobRange> ranges = JoinNeighbours(blobs);
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[0].offset, 0u);
  EXPECT_EQ(ranges[0].length, 260u + kGap);
  EXPECT_EQ(ranges[0].end, 3u);
  EXPECT_EQ(ranges[1].offset, 261u + 2 * kGap);
  EXPECT_EQ(ranges[1].length, 10u);
  EXPECT_EQ(ranges[2].offset, 100u);
  EXPECT_EQ(blobs[4].number, 0u);
}

TEST(BlobRanges, AreBounded) {
  std::vector<WantedBlob> blobs;
  constexpr uint32_t kMiB = 1 << 20;
  for (uint32_t i = 0; i < 20; ++i) blobs.push_back(Blob(1, i * kMiB, kMiB, i));
  // Larger than a range may be, alone.
  blobs.push_back(Blob(3, 0, kMaxRangeBytes + 1, 20));
  blobs.push_back(Blob(3, kMaxRangeBytes + 1, 1, 21));
  // Many times the same.
  for (uint32_t i = 0; i < 2 * kMaxRangeBlobs; ++i) blobs.push_back(Blob(4, 7, 40, 22 + i));
  std::vector<size_t> lengths;
  for (const BlobRange& range : JoinNeighbours(blobs)) lengths.push_back(range.length);
  EXPECT_EQ(lengths,
            (std::vector<size_t>{8 * kMiB, 8 * kMiB, 4 * kMiB, kMaxRangeBytes + 1, 1, 40, 40}));
}

TEST(BlobRanges, HoldTheirBlobsInEveryOrder) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<WantedBlob> blobs;
    const auto count = static_cast<uint32_t>(random() % 100);
    for (uint32_t i = 0; i < count; ++i) {
      // They overlap, and go up to the end of what 32 bits can say.
      const auto offset = static_cast<uint32_t>(random() >> (random() % 2 == 0 ? 32 : 42));
      blobs.push_back(Blob(static_cast<uint8_t>(random() % 3), offset,
                           static_cast<uint32_t>(random() % (1 << 20)), i));
    }
    const std::vector<WantedBlob> given = blobs;
    std::set<uint32_t> seen;
    size_t next = 0;
    for (const BlobRange& range : JoinNeighbours(blobs)) {
      ASSERT_LT(next, range.end);
      ASSERT_LE(range.length, kMaxRangeBytes);
      const size_t first = next;
      for (; next < range.end; ++next) {
        const PackedBlob& blob = blobs[next].place.blob;
        ASSERT_EQ(blobs[next].place.pack, blobs[first].place.pack);
        ASSERT_GE(blob.offset, range.offset);
        ASSERT_LE(uint64_t{blob.offset} + blob.length, range.offset + range.length);
        ASSERT_EQ(blob.offset, given[blobs[next].number].place.blob.offset);
        seen.insert(blobs[next].number);
      }
    }
    ASSERT_EQ(next, count);
    ASSERT_EQ(seen.size(), count);

    BlobGroups groups;
    groups.Add(given);
    std::vector<uint32_t> all;
    for (size_t i = 0; i < groups.size(); ++i) {
      ASSERT_TRUE(std::is_sorted(groups[i].begin(), groups[i].end()));
      all.insert(all.end(), groups[i].begin(), groups[i].end());
    }
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all, std::vector<uint32_t>(seen.begin(), seen.end()));
  }
}

}  // namespace blob_ranges_test
}  // namespace cbt::repository

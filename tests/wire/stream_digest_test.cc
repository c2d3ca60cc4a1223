// A stream's digest against XXH3 over the bytes that docs/reference/completeness.md describes.
#include <gtest/gtest.h>

#include <vector>

#include "cbt/units.h"
#include "cbt/wire/digest.h"
#include "cbt/wire/message.h"
#include "tests/support/seeded_random.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace cbt {
namespace stream_digest_test {

uint64_t Reference(const std::vector<uint64_t>& offsets, const std::vector<uint64_t>& lengths) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < offsets.size(); ++i) {
    for (const uint64_t value : {offsets[i], lengths[i]}) {
      for (int k = 0; k < 8; ++k) bytes.push_back(static_cast<uint8_t>(value >> (8 * k)));
    }
  }
  return XXH3_64bits(bytes.data(), bytes.size());
}

TEST(StreamDigest, TheExamplesOfTheDocument) {
  StreamDigest digest;
  EXPECT_EQ(digest.DigestText(), "2d06800538d394c2");
  const std::vector<uint64_t> offsets = {0, 8192};
  const std::vector<uint64_t> lengths = {4096, 4096};
  digest.Add(offsets, lengths);
  EXPECT_EQ(digest.DigestText(), "4e55d285f0e23415");
  EXPECT_EQ(digest.tuples(), 2u);
  EXPECT_EQ(digest.bytes(), 8192u);
}

TEST(StreamDigest, DoesNotDependOnHowTuplesAreCut) {
  test::SeededRandom random(1);
  std::vector<size_t> counts = {255, 256, 257, 1000, 5000};
  for (size_t count = 0; count < 150; ++count) counts.push_back(count);
  for (const size_t count : counts) {
    std::vector<uint64_t> offsets(count);
    std::vector<uint64_t> lengths(count);
    for (size_t i = 0; i < count; ++i) {
      offsets[i] = random();
      lengths[i] = random() >> (random() % 64);
    }
    const uint64_t expected = Reference(offsets, lengths);
    for (int round = 0; round < 20; ++round) {
      StreamDigest digest;
      for (size_t at = 0; at < count;) {
        const size_t part = std::min<size_t>(count - at, random() % (round < 10 ? 7 : 700));
        digest.Add(std::span(offsets).subspan(at, part), std::span(lengths).subspan(at, part));
        // Reading the digest does not change it.
        if (round % 3 == 0) (void)digest.digest();
        at += part;
      }
      EXPECT_EQ(digest.digest(), expected) << "round " << round << " of " << count << " tuples";
      EXPECT_EQ(digest.tuples(), count) << "round " << round;
    }
  }
}

TEST(StreamDigest, EveryBitCounts) {
  std::vector<uint64_t> offsets = {0, 4096, kMiB};
  std::vector<uint64_t> lengths = {512, 512, 512};
  const uint64_t before = Reference(offsets, lengths);
  for (size_t i = 0; i < 3; ++i) {
    for (int bit = 0; bit < 64; ++bit) {
      for (std::vector<uint64_t>* values : {&offsets, &lengths}) {
        (*values)[i] ^= uint64_t{1} << bit;
        StreamDigest digest;
        digest.Add(offsets, lengths);
        EXPECT_NE(digest.digest(), before);
        (*values)[i] ^= uint64_t{1} << bit;
      }
    }
  }
}

}  // namespace stream_digest_test
}  // namespace cbt

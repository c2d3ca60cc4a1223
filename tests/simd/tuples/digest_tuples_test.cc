// Every variant against the scalar one; tests/wire/stream_digest_test.cc compares that with the
// xxHash library.
#include <gtest/gtest.h>

#include <vector>

#include "simd/kernels.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/seeded_random.h"
#include "tests/support/variants.h"

namespace cbt {
namespace digest_tuples_test {

using simd::DigestLanes;
using simd::DigestTuplesKernels;
using simd::kBlockStripes;
using simd::kStripeTuples;
using test::GuardedMemory;

// Lanes to start from, at `stripe` of a block.
DigestLanes AnyLanes(test::SeededRandom& random, size_t stripe) {
  DigestLanes lanes = {{}, {}, stripe};
  for (size_t i = 0; i < 4; ++i) {
    lanes.even[i] = random();
    lanes.odd[i] = random();
  }
  return lanes;
}

class DigestTuplesTest : public test::VariantTest<DigestTuplesKernels> {
 protected:
  // Adds `stripes` stripes, which end at an unreadable page, with both variants.
  void Check(const uint64_t* offsets, const uint64_t* lengths, size_t stripes,
             const DigestLanes& start) {
    const size_t stripe = start.stripe;
    DigestLanes want = start;
    DigestLanes got = start;
    const uint64_t bytes = simd::scalar::kDigestTuples.add(offsets, lengths, stripes, want);
    ASSERT_EQ(kernels().add(offsets, lengths, stripes, got), bytes);
    ASSERT_EQ(got.stripe, want.stripe) << stripes << " stripes from " << stripe;
    ASSERT_EQ(got.stripe, (stripe + stripes) % kBlockStripes);
    for (size_t i = 0; i < 4; ++i) {
      ASSERT_EQ(got.even[i], want.even[i]) << stripes << " stripes from " << stripe;
      ASSERT_EQ(got.odd[i], want.odd[i]) << stripes << " stripes from " << stripe;
    }
  }
};

TEST_P(DigestTuplesTest, MatchesScalarFromEveryStripeForEveryLength) {
  test::SeededRandom random(1);
  for (size_t stripe = 0; stripe < kBlockStripes; ++stripe) {
    for (size_t stripes = 0; stripes <= 3 * kBlockStripes; ++stripes) {
      // Ends at a guard page; starts at any multiple of eight bytes.
      const GuardedMemory memory(2 * stripes * kStripeTuples * sizeof(uint64_t));
      auto* const offsets = reinterpret_cast<uint64_t*>(memory.data());
      uint64_t* const lengths = offsets + stripes * kStripeTuples;
      for (size_t i = 0; i < stripes * kStripeTuples; ++i) {
        offsets[i] = random() >> random() % 64;
        lengths[i] = random() >> random() % 64;
      }
      Check(offsets, lengths, stripes, AnyLanes(random, stripe));
      if (HasFatalFailure()) return;
    }
  }
}

// Blocks of one length are added in a way of their own: one tuple that differs, at every place.
TEST_P(DigestTuplesTest, FindsTheOneThatDiffersAmongTuplesOfOneLength) {
  test::SeededRandom random(2);
  constexpr size_t kStripes = 4 * kBlockStripes + 3;
  constexpr size_t kTuples = kStripes * kStripeTuples;
  const GuardedMemory memory(2 * kTuples * sizeof(uint64_t));
  auto* const offsets = reinterpret_cast<uint64_t*>(memory.data());
  uint64_t* const lengths = offsets + kTuples;
  for (const size_t stripe : {size_t{0}, size_t{1}, kBlockStripes - 1}) {
    for (const uint64_t length : {uint64_t{4096}, random()}) {
      for (size_t at = 0; at <= kTuples; ++at) {
        for (size_t i = 0; i < kTuples; ++i) {
          offsets[i] = random() >> random() % 64;
          lengths[i] = length ^ (i == at ? uint64_t{1} << random() % 64 : 0);
        }
        Check(offsets, lengths, kStripes, AnyLanes(random, stripe));
        if (HasFatalFailure()) FAIL() << "tuple " << at;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, DigestTuplesTest,
                         testing::ValuesIn(test::AsVector(simd::DigestTuplesVariants())),
                         test::VariantName<DigestTuplesKernels>);

}  // namespace digest_tuples_test
}  // namespace cbt

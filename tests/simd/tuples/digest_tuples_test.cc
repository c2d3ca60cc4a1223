// Every variant against the scalar one; tests/wire/stream_digest_test.cc compares that with the
// xxHash library.
#include <gtest/gtest.h>

#include <vector>

#include "simd/kernels.h"
#include "support/guarded_memory.h"
#include "support/seeded_random.h"
#include "support/variants.h"

namespace cbt {
namespace {

using simd::DigestLanes;
using simd::DigestTuplesKernels;
using simd::kBlockStripes;
using simd::kStripeTuples;
using test::GuardedMemory;

class DigestTuplesTest : public test::VariantTest<DigestTuplesKernels> {};

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
      DigestLanes want = {{}, {}, stripe};
      for (size_t i = 0; i < 4; ++i) {
        want.even[i] = random();
        want.odd[i] = random();
      }
      DigestLanes got = want;
      simd::scalar::kDigestTuples.add(offsets, lengths, stripes, want);
      kernels().add(offsets, lengths, stripes, got);
      ASSERT_EQ(got.stripe, want.stripe) << stripes << " stripes from " << stripe;
      ASSERT_EQ(got.stripe, (stripe + stripes) % kBlockStripes);
      for (size_t i = 0; i < 4; ++i) {
        ASSERT_EQ(got.even[i], want.even[i]) << stripes << " stripes from " << stripe;
        ASSERT_EQ(got.odd[i], want.odd[i]) << stripes << " stripes from " << stripe;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, DigestTuplesTest,
                         testing::ValuesIn(test::AsVector(simd::DigestTuplesVariants())),
                         test::VariantName<DigestTuplesKernels>);

}  // namespace
}  // namespace cbt

#include <gtest/gtest.h>

#include <random>

#include "simd/kernels.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/seeded_random.h"
#include "tests/support/variants.h"

namespace cbt {
namespace load_bits_test {

using simd::LoadBitsKernels;
using test::GuardedMemory;

class LoadBitsTest : public test::VariantTest<LoadBitsKernels> {
 protected:
  // Compares with a bit-by-bit loop. Input and output end at guard pages.
  void Check(std::mt19937_64& random, size_t words, unsigned shift, bool reverse, bool invert) {
    const GuardedMemory from(words * 8 + (shift != 0 ? 1 : 0));
    for (size_t i = 0; i < from.size(); ++i) from.data()[i] = static_cast<uint8_t>(random());
    const GuardedMemory out(words * 8);
    kernels().load(from.data(), shift, reverse, invert, reinterpret_cast<uint64_t*>(out.data()),
                   words);
    for (size_t bit = 0; bit < words * 64; ++bit) {
      const size_t at = shift + bit;
      const size_t in_byte = reverse ? 7 - at % 8 : at % 8;
      const bool want = ((from.data()[at / 8] >> in_byte & 1) != 0) != invert;
      const bool got = (out.data()[bit / 8] >> (bit % 8) & 1) != 0;
      ASSERT_EQ(got, want) << "bit " << bit << " of " << words << " words, shift " << shift
                           << (reverse ? ", reversed" : "") << (invert ? ", inverted" : "");
    }
  }
};

TEST_P(LoadBitsTest, MatchesBitByBitForEveryLayoutAndLength) {
  test::SeededRandom random(1);
  for (size_t words = 0; words <= 40; ++words) {
    for (unsigned layout = 0; layout < 32; ++layout) {
      Check(random, words, layout % 8, (layout & 8) != 0, (layout & 16) != 0);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, LoadBitsTest,
                         testing::ValuesIn(test::AsVector(simd::LoadBitsVariants())),
                         test::VariantName<LoadBitsKernels>);

}  // namespace load_bits_test
}  // namespace cbt

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "simd/kernels.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/seeded_random.h"
#include "tests/support/variants.h"

namespace cbt {
namespace count_bits_test {

using simd::BitCounts;
using simd::CountBitsFn;
using simd::CountBitsKernels;
using test::GuardedMemory;

struct Operation {
  const char* name;
  CountBitsFn* CountBitsKernels::*function;
  bool (*bit)(bool a, bool b);
};

constexpr Operation kOperations[] = {
    {"single", &CountBitsKernels::single, [](bool a, bool) { return a; }},
    {"exclusive", &CountBitsKernels::exclusive, [](bool a, bool b) { return a != b; }},
    {"and_not", &CountBitsKernels::and_not, [](bool a, bool b) { return b && !a; }},
    {"either", &CountBitsKernels::either, [](bool a, bool b) { return a || b; }},
    {"both", &CountBitsKernels::both, [](bool a, bool b) { return a && b; }},
};

bool BitOf(const uint8_t* bytes, size_t bit) { return (bytes[bit / 8] >> (bit % 8) & 1) != 0; }

class CountBitsTest : public test::VariantTest<CountBitsKernels> {
 protected:
  void Check(const uint8_t* a, const uint8_t* b, size_t words, uint64_t open) {
    for (const Operation& operation : kOperations) {
      BitCounts want{0, 0, open};
      for (size_t i = 0; i < words * 64; ++i) {
        const bool bit = operation.bit(BitOf(a, i), BitOf(b, i));
        want.ones += bit ? 1 : 0;
        want.starts += bit && want.open == 0 ? 1 : 0;
        want.open = bit ? 1 : 0;
      }
      const BitCounts got = (kernels().*operation.function)(a, b, words, open);
      ASSERT_EQ(got.ones, want.ones) << operation.name << " of " << words << " words";
      ASSERT_EQ(got.starts, want.starts) << operation.name << " of " << words << " words";
      ASSERT_EQ(got.open, want.open) << operation.name << " of " << words << " words";
    }
  }
};

TEST_P(CountBitsTest, MatchesBitByBitForEveryLengthAndAlignment) {
  test::SeededRandom random(1);
  for (size_t words = 0; words <= 70; ++words) {
    const size_t shift = words % 9;
    const GuardedMemory a(words * 8 + shift);
    const GuardedMemory b(words * 8);
    for (int density = 0; density < 3; ++density) {
      SCOPED_TRACE(absl::StrCat("density ", density, ", shift ", shift));
      for (GuardedMemory const* memory : {&a, &b}) {
        for (size_t i = 0; i < memory->size(); ++i) {
          const uint64_t word = random();
          const uint64_t byte = density == 0   ? word
                                : density == 1 ? word & word >> 8 & word >> 16
                                               : word | word >> 8 | word >> 16;
          memory->data()[i] = static_cast<uint8_t>(byte);
        }
      }
      Check(a.data() + shift, b.data(), words, static_cast<uint64_t>(density) % 2);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(CountBitsTest, CountsEverySixteenBitPattern) {
  for (uint64_t pattern = 0; pattern < 65536; ++pattern) {
    const uint64_t a = pattern << (pattern % 4 * 16);
    const uint64_t b = ~a;
    Check(reinterpret_cast<const uint8_t*>(&a), reinterpret_cast<const uint8_t*>(&b), 1,
          pattern / 4 % 2);
    if (HasFatalFailure()) FAIL() << "pattern " << pattern;
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, CountBitsTest,
                         testing::ValuesIn(test::AsVector(simd::CountBitsVariants())),
                         test::VariantName<CountBitsKernels>);

}  // namespace count_bits_test
}  // namespace cbt

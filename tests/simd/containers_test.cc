#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "simd/kernels.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/seeded_random.h"
#include "tests/support/variants.h"

namespace cbt {
namespace containers_test {

using simd::ContainersKernels;
using simd::kContainerSlack;
using test::GuardedMemory;

using Values = std::vector<uint16_t>;
using Pairs = std::vector<std::pair<uint64_t, uint64_t>>;

// Values between 0 and 65535 in runs of about `run`; about one in `sparse` of them is set.
Values SomeValues(std::mt19937_64& random, unsigned sparse, unsigned run, size_t most) {
  Values values;
  for (uint32_t v = 0; v < 65536 && values.size() < most; ++v) {
    if (random() % sparse != 0) continue;
    for (uint64_t n = 1 + random() % run; n > 0 && v < 65536 && values.size() < most; --n, ++v) {
      values.push_back(static_cast<uint16_t>(v));
    }
  }
  return values;
}

// (first, count) of the maximal runs, bit by bit.
Pairs RunsOf(const Values& values) {
  Pairs runs;
  for (const uint16_t value : values) {
    if (!runs.empty() && runs.back().first + runs.back().second == value) {
      ++runs.back().second;
    } else {
      runs.emplace_back(value, 1);
    }
  }
  return runs;
}

Values AsPairs(const Pairs& runs) {
  Values pairs;
  for (const auto& [first, count] : runs) {
    pairs.push_back(static_cast<uint16_t>(first));
    pairs.push_back(static_cast<uint16_t>(count - 1));
  }
  return pairs;
}

// The values as bytes that end at a guard page, or begin after one.
std::unique_ptr<GuardedMemory> Guarded(const Values& values, GuardedMemory::Guard guard) {
  auto memory = std::make_unique<GuardedMemory>(values.size() * 2, guard);
  std::memcpy(memory->data(), values.data(), values.size() * 2);
  return memory;
}

class ContainersTest : public test::VariantTest<ContainersKernels> {
 protected:
  void ExpectRuns(size_t runs, const Pairs& want, const uint64_t* offsets, const uint64_t* lengths,
                  uint64_t origin, unsigned shift) {
    ASSERT_EQ(runs, want.size());
    for (size_t i = 0; i < runs; ++i) {
      ASSERT_EQ(offsets[i], origin + (want[i].first << shift)) << "run " << i;
      ASSERT_EQ(lengths[i], want[i].second << shift) << "run " << i;
    }
  }

  void CheckBothWays(const Values& values) {
    const Pairs want = RunsOf(values);
    const Values pairs = AsPairs(want);
    constexpr uint64_t kOrigin = uint64_t{7} << 45;
    const unsigned shift = static_cast<unsigned>(values.size() % 20);
    for (const auto guard : {GuardedMemory::Guard::kAfter, GuardedMemory::Guard::kBefore}) {
      const size_t places = values.size() + kContainerSlack;
      const GuardedMemory offsets(places * 8);
      const GuardedMemory lengths(places * 8);
      auto* const o = reinterpret_cast<uint64_t*>(offsets.data());
      auto* const l = reinterpret_cast<uint64_t*>(lengths.data());
      const auto array = Guarded(values, guard);
      const size_t runs =
          kernels().expand_values(array->data(), values.size(), kOrigin, shift, o, l);
      ExpectRuns(runs, want, o, l, kOrigin, shift);
      EXPECT_TRUE(kernels().check_values(array->data(), values.size()));
      const auto list = Guarded(pairs, guard);
      kernels().expand_pairs(list->data(), want.size(), kOrigin, shift, o, l);
      ExpectRuns(want.size(), want, o, l, kOrigin, shift);
      EXPECT_EQ(kernels().check_pairs(list->data(), want.size()), values.size());
    }
    const GuardedMemory words(8192);
    for (const uint16_t v : values) words.data()[v / 8] |= static_cast<uint8_t>(1u << v % 8);
    const GuardedMemory out((values.size() + kContainerSlack) * 2);
    auto* const collected = reinterpret_cast<uint16_t*>(out.data());
    ASSERT_EQ(kernels().collect_values(words.data(), collected), values.size());
    EXPECT_EQ(Values(collected, collected + values.size()), values);
    CheckFew(words.data(), values);
  }

  // Finds the values of a bitset. The kernel may give up exactly where the scalar variant does.
  void CheckFew(const uint8_t* words, const Values& values) {
    size_t most = 0;
    for (size_t i = 0; i < 1024; ++i) {
      uint64_t word;
      std::memcpy(&word, words + 8 * i, 8);
      most = std::max(most, static_cast<size_t>(std::popcount(word)));
    }
    const GuardedMemory out((simd::kMaxArrayValues + kContainerSlack) * 2);
    auto* const found = reinterpret_cast<uint16_t*>(out.data());
    const simd::FewValues scalar = simd::scalar::kContainers.collect_few(words, found);
    std::memset(out.data(), 0xee, out.size());
    const simd::FewValues few = kernels().collect_few(words, found);
    ASSERT_EQ(few.count, scalar.count);
    if (most <= simd::kFewBits && values.size() <= 3700) {
      ASSERT_NE(few.count, simd::kNotFew);
    }
    if (most > simd::kFewBits) {
      ASSERT_EQ(few.count, simd::kNotFew);
    }
    if (few.count == simd::kNotFew) return;
    ASSERT_EQ(Values(found, found + few.count), values);
    ASSERT_EQ(few.runs, RunsOf(values).size());
  }
};

// Up to kFewBits bits per word, at every density, and one word with too many.
TEST_P(ContainersTest, CollectsFewBitsOfEveryWord) {
  test::SeededRandom random(6);
  for (unsigned round = 0; round < 300; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const GuardedMemory words(
        8192, round % 2 == 0 ? GuardedMemory::Guard::kAfter : GuardedMemory::Guard::kBefore);
    std::memset(words.data(), 0, words.size());
    const uint64_t every = 1 + random() % (round % 3 == 0 ? 3 : 200);
    for (size_t i = random() % 3 * 1000; i < 1024; i += 1 + random() % every) {
      uint64_t word = 0;
      // Often at a word's ends, where runs continue into the next word.
      for (uint64_t n = 1 + random() % (round % 5 == 0 ? simd::kFewBits : 5); n > 0; --n) {
        const uint64_t bit = random() % 3 == 0 ? random() % 2 * 63 : random() % 64;
        word |= uint64_t{1} << bit;
      }
      if (random() % 4 == 0) word = uint64_t{0xff} << random() % 57;
      std::memcpy(words.data() + 8 * i, &word, 8);
    }
    if (round % 7 == 0) {
      constexpr uint64_t kOneMore = (uint64_t{2} << simd::kFewBits) - 1;
      std::memcpy(words.data() + 8 * (random() % 1024), &kOneMore, 8);
    }
    Values values;
    for (uint32_t v = 0; v < 65536; ++v) {
      if ((words.data()[v / 8] >> v % 8 & 1) != 0) values.push_back(static_cast<uint16_t>(v));
    }
    CheckFew(words.data(), values);
    if (HasFatalFailure()) return;
  }
}

TEST_P(ContainersTest, EveryCountOfSinglesRunsAndBoth) {
  test::SeededRandom random(1);
  for (size_t count = 1; count <= 4096; count += count < 200 || count >= 4090 ? 1 : 97) {
    for (const unsigned run : {1u, 3u, 70u, 5000u}) {
      SCOPED_TRACE(absl::StrCat(count, " values in runs of ", run));
      const unsigned sparse = static_cast<unsigned>(1 + 40000 / (count * run + 1));
      Values values = SomeValues(random, sparse, run, count);
      CheckBothWays(values);
      // The same at the container's end.
      const auto by = static_cast<uint16_t>(65535 - values.back());
      for (uint16_t& value : values) value = static_cast<uint16_t>(value + by);
      CheckBothWays(values);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ContainersTest, EveryOddAlignment) {
  test::SeededRandom random(2);
  const Values values = SomeValues(random, 5, 4, 300);
  const Pairs want = RunsOf(values);
  const Values pairs = AsPairs(want);
  for (size_t shift = 0; shift < 64; ++shift) {
    SCOPED_TRACE(absl::StrCat("alignment ", shift));
    std::vector<uint8_t> memory(values.size() * 2 + pairs.size() * 2 + shift);
    std::memcpy(memory.data() + shift, values.data(), values.size() * 2);
    std::vector<uint64_t> offsets(values.size() + kContainerSlack);
    std::vector<uint64_t> lengths(values.size() + kContainerSlack);
    ExpectRuns(kernels().expand_values(memory.data() + shift, values.size(), 0, 3, offsets.data(),
                                       lengths.data()),
               want, offsets.data(), lengths.data(), 0, 3);
    std::memcpy(memory.data() + shift, pairs.data(), pairs.size() * 2);
    kernels().expand_pairs(memory.data() + shift, want.size(), 0, 3, offsets.data(),
                           lengths.data());
    ExpectRuns(want.size(), want, offsets.data(), lengths.data(), 0, 3);
    EXPECT_EQ(kernels().check_pairs(memory.data() + shift, want.size()), values.size());
  }
}

TEST_P(ContainersTest, NoticesEveryMisplacedValue) {
  test::SeededRandom random(3);
  for (const size_t count : {2u, 31u, 32u, 33u, 64u, 65u, 200u}) {
    Values values = SomeValues(random, 40, 2, count);
    for (size_t i = 1; i < values.size(); ++i) {
      const uint16_t kept = values[i];
      for (const int wrong : {0, -1}) {
        values[i] = static_cast<uint16_t>(values[i - 1] + wrong);
        EXPECT_FALSE(
            kernels().check_values(reinterpret_cast<const uint8_t*>(values.data()), values.size()))
            << i << " of " << count;
      }
      values[i] = kept;
    }
  }
}

TEST_P(ContainersTest, NoticesEveryMisplacedRun) {
  const auto check = [&](const Values& pairs) {
    return kernels().check_pairs(reinterpret_cast<const uint8_t*>(pairs.data()), pairs.size() / 2);
  };
  EXPECT_EQ(check({0, 65535}), 65536u);
  EXPECT_EQ(check({65535, 0}), 1u);
  EXPECT_EQ(check({65535, 1}), 0u);
  EXPECT_EQ(check({65000, 65535}), 0u);
  for (const size_t count : {2u, 9u, 17u, 64u, 257u}) {
    Values pairs;
    for (size_t i = 0; i < count; ++i) {
      pairs.push_back(static_cast<uint16_t>(i * 20));
      pairs.push_back(static_cast<uint16_t>(i % 10));
    }
    ASSERT_NE(check(pairs), 0u);
    for (size_t i = 1; i < count; ++i) {
      Values wrong = pairs;
      const int end = pairs[2 * i - 2] + pairs[2 * i - 1];
      // Touches or overlaps the run before, begins with or before it; then reaches past the end.
      for (const int start : {end + 1, end, pairs[2 * i - 2] + 0, 0}) {
        wrong[2 * i] = static_cast<uint16_t>(start);
        EXPECT_EQ(check(wrong), 0u) << i << " at " << start;
      }
      wrong = pairs;
      wrong[2 * i + 1] = 65535;
      EXPECT_EQ(check(wrong), 0u) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, ContainersTest,
                         testing::ValuesIn(test::AsVector(simd::ContainersVariants())),
                         test::VariantName<ContainersKernels>);

}  // namespace containers_test
}  // namespace cbt

#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "simd/kernels.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/seeded_random.h"
#include "tests/support/variants.h"

namespace cbt {
namespace list_blocks_test {

using simd::BlockKernel;
using simd::BlockScan;
using simd::kBlockSlack;
using simd::ListBlocksKernels;
using test::GuardedMemory;

struct Operation {
  const char* name;
  const BlockKernel* ListBlocksKernels::*kernel;
  bool (*bit)(bool a, bool b);
};

constexpr Operation kOperations[] = {
    {"single", &ListBlocksKernels::single, [](bool a, bool) { return a; }},
    {"exclusive", &ListBlocksKernels::exclusive, [](bool a, bool b) { return a != b; }},
    {"and_not", &ListBlocksKernels::and_not, [](bool a, bool b) { return b && !a; }},
    {"either", &ListBlocksKernels::either, [](bool a, bool b) { return a || b; }},
    {"both", &ListBlocksKernels::both, [](bool a, bool b) { return a && b; }},
};

bool BitOf(const uint8_t* bytes, size_t bit) { return (bytes[bit / 8] >> (bit % 8) & 1) != 0; }

class ListBlocksTest : public test::VariantTest<ListBlocksKernels> {
 protected:
  // The scans find exactly the set bits, in as many calls as `room` requires.
  void CheckList(const uint8_t* a, const uint8_t* b, size_t words, size_t room) {
    constexpr uint64_t kOrigin = uint64_t{5} << 40;
    constexpr unsigned kShift = 12;
    for (const Operation& operation : kOperations) {
      std::vector<uint64_t> want;
      for (size_t i = 0; i < words * 64; ++i) {
        if (operation.bit(BitOf(a, i), BitOf(b, i))) want.push_back(kOrigin + (i << kShift));
      }
      std::vector<uint64_t> got;
      const GuardedMemory memory((room + kBlockSlack) * sizeof(uint64_t));
      auto* const offsets = reinterpret_cast<uint64_t*>(memory.data());
      for (size_t at = 0; at < words;) {
        const auto list = [&](const ListBlocksKernels& kernels) {
          return (kernels.*operation.kernel)
              ->list(a + at * 8, b + at * 8, words - at, kOrigin + (at * 64 << kShift), kShift,
                     offsets, room);
        };
        const BlockScan scalar = list(simd::scalar::kListBlocks);
        const BlockScan scan = list(kernels());
        ASSERT_EQ(scan.words, scalar.words) << operation.name << " from word " << at;
        ASSERT_EQ(scan.blocks, scalar.blocks) << operation.name << " from word " << at;
        ASSERT_GT(scan.words, 0u) << operation.name;
        ASSERT_LT(scan.blocks, room + 64) << operation.name;
        got.insert(got.end(), offsets, offsets + scan.blocks);
        at += scan.words;
      }
      ASSERT_EQ(got, want) << operation.name << " of " << words << " words";
    }
  }

  void CheckFold(const uint8_t* a, const uint8_t* b, size_t words) {
    for (const Operation& operation : kOperations) {
      for (unsigned fold = 1; fold <= 6; ++fold) {
        const size_t folded = words >> fold;
        std::vector<uint64_t> want(folded);
        for (size_t i = 0; i < folded << fold << 6; ++i) {
          if (!operation.bit(BitOf(a, i), BitOf(b, i))) continue;
          want[(i >> fold) / 64] |= uint64_t{1} << ((i >> fold) % 64);
        }
        std::vector<uint64_t> got(folded);
        (kernels().*operation.kernel)->fold(a, b, folded, fold, got.data());
        ASSERT_EQ(got, want) << operation.name << " of " << words << " words, fold " << fold;
      }
    }
  }
};

TEST_P(ListBlocksTest, MatchesBitByBitForEveryLengthAlignmentAndRoom) {
  test::SeededRandom random(1);
  for (size_t words = 0; words <= 140; ++words) {
    const size_t shift = words % 9;
    const GuardedMemory a(words * 8 + shift);
    const GuardedMemory b(words * 8);
    for (int density = 0; density < 5; ++density) {
      SCOPED_TRACE(absl::StrCat("density ", density, ", shift ", shift));
      for (GuardedMemory const* memory : {&a, &b}) {
        for (size_t i = 0; i < memory->size(); ++i) {
          const uint64_t word = random();
          const uint64_t byte = density == 0   ? word
                                : density == 1 ? word & word >> 8 & word >> 16
                                : density == 2 ? word | word >> 8 | word >> 16
                                : density == 3 ? (word % 97 == 0 ? word >> 8 : 0)
                                               : (i / 100 % 2 == 0 ? 0xff : 0);
          memory->data()[i] = static_cast<uint8_t>(byte);
        }
      }
      CheckList(a.data() + shift, b.data(), words, 1 + random() % 400);
      if (words % 4 == 0) CheckFold(a.data() + shift, b.data(), words);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ListBlocksTest, ListsEverySixteenBitPattern) {
  for (uint64_t pattern = 0; pattern < 65536; ++pattern) {
    const uint64_t word = pattern << (pattern % 4 * 16);
    uint64_t offsets[1 + kBlockSlack];
    const BlockScan scan = kernels().single->list(reinterpret_cast<const uint8_t*>(&word), nullptr,
                                                  1, 100, 1, offsets, 1);
    size_t found = 0;
    for (uint64_t bit = 0; bit < 64; ++bit) {
      if ((word >> bit & 1) == 0) continue;
      ASSERT_LT(found, scan.blocks) << word;
      ASSERT_EQ(offsets[found++], 100 + 2 * bit) << word;
    }
    ASSERT_EQ(scan.blocks, found) << word;
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, ListBlocksTest,
                         testing::ValuesIn(test::AsVector(simd::ListBlocksVariants())),
                         test::VariantName<ListBlocksKernels>);

}  // namespace list_blocks_test
}  // namespace cbt

// Queries on a container against the set of its values.
#include "map/container.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bitset>
#include <cstring>
#include <random>
#include <vector>

#include "map/portable_writer.h"
#include "tests/map/maps.h"
#include "tests/support/generators.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace container_test {

using Set = std::bitset<kContainerBlocks>;

// A container and its bytes, at an odd address.
struct Laid {
  std::vector<uint8_t> bytes;
  Container container;
};

Laid Lay(const Set& set, ContainerKind kind) {
  Laid laid;
  laid.container.kind = kind;
  laid.container.cardinality = static_cast<uint32_t>(set.count());
  laid.bytes.push_back(0);
  const auto append = [&](uint64_t number, size_t size) {
    for (size_t i = 0; i < size; ++i) {
      laid.bytes.push_back(static_cast<uint8_t>(number >> (8 * i)));
    }
  };
  switch (kind) {
    case ContainerKind::kArray:
      for (uint32_t v = 0; v < kContainerBlocks; ++v) {
        if (set[v]) append(v, 2);
      }
      laid.container.count = laid.container.cardinality;
      break;
    case ContainerKind::kBitset:
      for (size_t i = 0; i < kBitsetWords; ++i) {
        uint64_t word = 0;
        for (size_t bit = 0; bit < 64; ++bit) word |= uint64_t{set[i * 64 + bit]} << bit;
        append(word, 8);
      }
      break;
    case ContainerKind::kRun:
      for (uint32_t v = 0; v < kContainerBlocks; ++v) {
        if (!set[v] || (v > 0 && set[v - 1])) continue;
        uint32_t last = v;
        while (last + 1 < kContainerBlocks && set[last + 1]) ++last;
        append(v, 2);
        append(last - v, 2);
        ++laid.container.count;
      }
      break;
  }
  // Kernels load whole vectors.
  laid.bytes.resize(laid.bytes.size() + 64);
  laid.container.data = laid.bytes.data() + 1;
  return laid;
}

void ExpectSame(const ContainerWords& words, const Set& set) {
  for (size_t i = 0; i < kContainerBlocks; ++i) {
    ASSERT_EQ((words[i / 64] >> i % 64 & 1) != 0, set[i]) << i;
  }
}

void ExpectAllAnswers(const Set& set, std::mt19937_64& random) {
  uint32_t last = 0;
  uint32_t runs = 0;
  for (uint32_t v = 0; v < kContainerBlocks; ++v) {
    if (!set[v]) continue;
    last = v;
    runs += v == 0 || !set[v - 1] ? 1 : 0;
  }
  for (const ContainerKind kind :
       {ContainerKind::kArray, ContainerKind::kBitset, ContainerKind::kRun}) {
    const Laid laid = Lay(set, kind);
    const Container& container = laid.container;
    SCOPED_TRACE(static_cast<int>(kind));
    EXPECT_EQ(CheckContainer(container), nullptr);
    EXPECT_EQ(LastValue(container), last);
    EXPECT_EQ(CountRuns(container), runs);
    for (int i = 0; i < 50; ++i) {
      // Random values, and both ends.
      const auto value = i < 2 ? static_cast<uint32_t>(i) * (kContainerBlocks - 1)
                               : static_cast<uint32_t>(random() % kContainerBlocks);
      EXPECT_EQ(ContainsValue(container, value), set[value]) << value;
      const Set below = value == 0 ? Set() : set << (kContainerBlocks - value);
      EXPECT_EQ(CountBelow(container, value), below.count()) << value;
    }
    EXPECT_EQ(CountBelow(container, kContainerBlocks), set.count());
    ContainerWords words;
    words.fill(~uint64_t{0});
    CopyInto(container, words);
    ExpectSame(words, set);
    Set united;
    united.set(77);
    words.fill(0);
    words[77 / 64] |= uint64_t{1} << 77 % 64;
    UniteInto(container, words);
    ExpectSame(words, united | set);
  }
}

RC_GTEST_PROP(Container, AnswersAsTheSetOfItsValues, ()) {
  std::mt19937_64 random = test::AnyRandom();
  Set set;
  for (const uint64_t value : test::SomeContainer(random)) set.set(value);
  RC_PRE(set.any());
  ExpectAllAnswers(set, random);
}

TEST(Container, AnswersAtItsEnds) {
  test::SeededRandom random(1);
  for (const std::vector<uint32_t>& values :
       {std::vector<uint32_t>{0}, {63}, {64}, {kContainerBlocks - 1}, {0, kContainerBlocks - 1}}) {
    Set set;
    for (const uint32_t value : values) set.set(value);
    SCOPED_TRACE(testing::PrintToString(values));
    ExpectAllAnswers(set, random);
  }
  ExpectAllAnswers(Set().set(), random);
}

// No decoder accepts an empty bitset, but reading one must still stay within its words.
TEST(Container, ABitsetOfNothingHasNoLastValue) {
  EXPECT_EQ(LastValue(Lay(Set(), ContainerKind::kBitset).container), 0u);
}

TEST(Container, SetsRangesOfEveryLengthAroundWords) {
  for (const uint32_t begin : {0u, 1u, 62u, 63u, 64u, 65u, 127u, 128u, 65472u, 65535u}) {
    for (const uint32_t length : {0u, 1u, 2u, 62u, 63u, 64u, 65u, 128u, 129u, 65536u}) {
      const uint32_t end = std::min(begin + length, kContainerBlocks);
      ContainerWords words{};
      SetRange(words, begin, end);
      Set set;
      for (uint32_t i = begin; i < end; ++i) set.set(i);
      ExpectSame(words, set);
    }
  }
  ContainerWords words{};
  SetRange(words, 5, 4);
  ExpectSame(words, Set());
}

// A map over the size limit is refused, never truncated. A writer that reports the limit midway
// must not return the partial map.
TEST(PortableWriter, RefusesMoreThanThereMayBe) {
  for (uint64_t most = 8; most < 200; ++most) {
    bool refused = false;
    for (uint64_t containers = 0; !refused; ++containers) {
      ASSERT_LT(containers, 100u);
      for (const bool full : {true, false}) {  // runs, which need no offset table, or arrays
        PortableWriter limited(0, most);
        PortableWriter whole;
        ContainerWords words{};
        words[0] = 5;
        bool hit_limit = false;
        for (uint64_t key = 0; key < containers && !hit_limit; ++key) {
          for (PortableWriter* const writer : {&limited, &whole}) {
            full ? writer->AddFull(key)
                 : writer->AddWords(key, reinterpret_cast<const uint8_t*>(words.data()));
          }
          hit_limit = limited.too_large();
        }
        const absl::StatusOr<std::vector<uint8_t>> bytes = limited.Finish();
        ASSERT_OK_AND_ASSIGN(const std::vector<uint8_t> expected, whole.Finish());
        EXPECT_EQ(bytes.ok(), expected.size() <= most) << most << ", " << containers;
        EXPECT_FALSE(hit_limit && bytes.ok()) << most << ", " << containers;
        if (bytes.ok()) {
          EXPECT_EQ(*bytes, expected);
        } else {
          EXPECT_EQ(bytes.status().code(), absl::StatusCode::kResourceExhausted);
          refused = true;
        }
      }
    }
  }
}

}  // namespace container_test
}  // namespace cbt

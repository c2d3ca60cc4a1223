#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "simd/kernels.h"
#include "support/guarded_memory.h"
#include "support/variants.h"

namespace cbt {
namespace {

using simd::EdgeScan;
using simd::kEdgesPerWord;
using simd::RunEdgesFn;
using simd::RunEdgesKernels;
using test::GuardedMemory;

struct Operation {
  const char* name;
  RunEdgesFn* RunEdgesKernels::*function;
  bool (*bit)(bool a, bool b);
};

constexpr Operation kOperations[] = {
    {"single", &RunEdgesKernels::single, [](bool a, bool) { return a; }},
    {"exclusive", &RunEdgesKernels::exclusive, [](bool a, bool b) { return a != b; }},
    {"and_not", &RunEdgesKernels::and_not, [](bool a, bool b) { return b && !a; }},
    {"either", &RunEdgesKernels::either, [](bool a, bool b) { return a || b; }},
    {"both", &RunEdgesKernels::both, [](bool a, bool b) { return a && b; }},
};

bool BitOf(const uint8_t* bytes, size_t bit) { return (bytes[bit / 8] >> (bit % 8) & 1) != 0; }

// Bit by bit.
std::vector<uint64_t> Expected(const Operation& operation, const uint8_t* a, const uint8_t* b,
                               size_t words, uint64_t position, bool open) {
  std::vector<uint64_t> edges;
  for (size_t i = 0; i < words * 64; ++i) {
    const bool bit = operation.bit(BitOf(a, i), BitOf(b, i));
    if (bit != open) edges.push_back(position + i);
    open = bit;
  }
  return edges;
}

class RunEdgesTest : public test::VariantTest<RunEdgesKernels> {
 protected:
  static constexpr size_t kMaxWords = 80;

  // Compares one scan with the bit-by-bit answer; the output ends at a guard page.
  void Check(const uint8_t* a, const uint8_t* b, size_t words, uint64_t position, uint64_t carry) {
    ASSERT_LE(words, kMaxWords);
    const size_t room = (words + 1) * kEdgesPerWord;
    auto* const edges = reinterpret_cast<uint64_t*>(out_.data()) + kMaxRoom - room;
    for (const Operation& operation : kOperations) {
      const auto want = Expected(operation, a, b, words, position, carry != 0);
      const EdgeScan scan =
          (kernels().*operation.function)(a, b, words, position, carry, edges, room);
      ASSERT_EQ(scan.words, words) << operation.name;
      ASSERT_EQ(scan.edges, want.size()) << operation.name;
      ASSERT_TRUE(std::equal(want.begin(), want.end(), edges)) << operation.name;
    }
  }

 private:
  static constexpr size_t kMaxRoom = (kMaxWords + 1) * kEdgesPerWord;
  const GuardedMemory out_{kMaxRoom * sizeof(uint64_t)};
};

enum class Pattern { kZeros, kOnes, kAlternating, kSparse, kDense, kRandom, kClustered, kCount };

void Fill(Pattern pattern, std::mt19937_64& random, uint8_t* bytes, size_t words) {
  bool run = false;
  for (size_t i = 0; i < words; ++i) {
    uint64_t word = 0;
    switch (pattern) {
      case Pattern::kZeros:
      case Pattern::kCount:
        break;
      case Pattern::kOnes:
        word = ~uint64_t{0};
        break;
      case Pattern::kAlternating:
        word = 0x5555555555555555u;
        break;
      case Pattern::kSparse:
        if (random() % 8 == 0) word = uint64_t{1} << (random() % 64);
        break;
      case Pattern::kDense:
        word = ~(random() % 8 == 0 ? uint64_t{1} << (random() % 64) : 0);
        break;
      case Pattern::kRandom:
        word = random();
        break;
      case Pattern::kClustered:
        if (random() % 6 == 0) {
          word = ~uint64_t{0} << (random() % 64);
          if (run) word = ~word;
          run = !run;
        } else if (run) {
          word = ~uint64_t{0};
        }
        break;
    }
    std::memcpy(bytes + i * 8, &word, 8);
  }
}

TEST_P(RunEdgesTest, MatchesBitByBitForEveryLengthAndPattern) {
  std::mt19937_64 random(1);
  for (size_t words = 0; words <= kMaxWords; ++words) {
    GuardedMemory memory_a(words * 8);
    GuardedMemory memory_b(words * 8, GuardedMemory::Guard::kBefore);
    for (int p = 0; p < static_cast<int>(Pattern::kCount); ++p) {
      for (int q = 0; q < static_cast<int>(Pattern::kCount); ++q) {
        Fill(static_cast<Pattern>(p), random, memory_a.data(), words);
        Fill(static_cast<Pattern>(q), random, memory_b.data(), words);
        Check(memory_a.data(), memory_b.data(), words, 64 * random() % 1000, random() % 2);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(RunEdgesTest, ReadsFromEveryAlignment) {
  std::mt19937_64 random(2);
  constexpr size_t kWords = 67;
  for (size_t shift = 0; shift < 64; ++shift) {
    GuardedMemory a(kWords * 8 + shift, GuardedMemory::Guard::kBefore);
    GuardedMemory b(kWords * 8 + 63 - shift, GuardedMemory::Guard::kBefore);
    Fill(Pattern::kClustered, random, a.data() + shift, kWords);
    Fill(Pattern::kSparse, random, b.data() + 63 - shift, kWords);
    Check(a.data() + shift, b.data() + 63 - shift, kWords, 0, shift % 2);
    if (HasFatalFailure()) return;
  }
}

TEST_P(RunEdgesTest, HandlesEverySixteenBitPatternAtEveryPlaceOfAWord) {
  for (uint64_t pattern = 0; pattern < 65536; ++pattern) {
    const uint64_t word = pattern << (pattern % 4 * 16);
    const uint64_t other = 0;
    Check(reinterpret_cast<const uint8_t*>(&word), reinterpret_cast<const uint8_t*>(&other), 1, 128,
          pattern / 4 % 2);
    if (HasFatalFailure()) return;
  }
}

// A scan that runs out of room stops after a whole word, and going on from there gives the rest.
TEST_P(RunEdgesTest, StopsBeforeTheRoomEndsAndContinues) {
  std::mt19937_64 random(3);
  constexpr size_t kWords = 200;
  std::vector<uint8_t> a(kWords * 8);
  std::vector<uint8_t> b(kWords * 8);
  for (int round = 0; round < 200; ++round) {
    Fill(static_cast<Pattern>(random() % static_cast<int>(Pattern::kCount)), random, a.data(),
         kWords);
    Fill(static_cast<Pattern>(random() % static_cast<int>(Pattern::kCount)), random, b.data(),
         kWords);
    for (const Operation& operation : kOperations) {
      const size_t room = kEdgesPerWord + random() % 300;
      GuardedMemory out(room * sizeof(uint64_t));
      auto* edges = reinterpret_cast<uint64_t*>(out.data());
      std::vector<uint64_t> got;
      size_t done = 0;
      while (done < kWords) {
        const EdgeScan scan =
            (kernels().*operation.function)(a.data() + done * 8, b.data() + done * 8, kWords - done,
                                            done * 64, got.size() % 2, edges, room);
        ASSERT_LE(scan.edges, room);
        ASSERT_GT(scan.words, 0u);
        got.insert(got.end(), edges, edges + scan.edges);
        done += scan.words;
      }
      ASSERT_EQ(done, kWords);
      ASSERT_EQ(got, Expected(operation, a.data(), b.data(), kWords, 0, false)) << operation.name;
    }
  }
}

// Found by fuzzing: a variant went on over quiet words when the room had run out, and consumed more
// words than the scalar one.
TEST_P(RunEdgesTest, StopsAtTheSameWordAsTheScalarVariant) {
  constexpr size_t kWords = 80;
  std::vector<uint64_t> a(kWords, 0);
  a[0] = 0x5555555555555555u;
  const auto* bytes = reinterpret_cast<const uint8_t*>(a.data());
  for (size_t room = kEdgesPerWord; room < 3 * kEdgesPerWord; ++room) {
    std::vector<uint64_t> edges(room);
    const EdgeScan want =
        simd::scalar::kRunEdges.single(bytes, bytes, kWords, 0, 0, edges.data(), room);
    const EdgeScan scan = kernels().single(bytes, bytes, kWords, 0, 0, edges.data(), room);
    ASSERT_EQ(scan.words, want.words) << room;
    ASSERT_EQ(scan.edges, want.edges) << room;
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, RunEdgesTest,
                         testing::ValuesIn(test::AsVector(simd::RunEdgesVariants())),
                         test::VariantName<RunEdgesKernels>);

}  // namespace
}  // namespace cbt

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "simd/kernels.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/seeded_random.h"
#include "tests/support/variants.h"

namespace cbt {
namespace extract_runs_test {

using simd::ExtractRunsFn;
using simd::ExtractRunsKernels;
using simd::kRunSlack;
using simd::RunScan;
using test::GuardedMemory;

struct Operation {
  const char* name;
  ExtractRunsFn* ExtractRunsKernels::*function;
  bool (*bit)(bool a, bool b);
};

constexpr Operation kOperations[] = {
    {"single", &ExtractRunsKernels::single, [](bool a, bool) { return a; }},
    {"exclusive", &ExtractRunsKernels::exclusive, [](bool a, bool b) { return a != b; }},
    {"and_not", &ExtractRunsKernels::and_not, [](bool a, bool b) { return b && !a; }},
    {"either", &ExtractRunsKernels::either, [](bool a, bool b) { return a || b; }},
    {"both", &ExtractRunsKernels::both, [](bool a, bool b) { return a && b; }},
};

bool BitOf(const uint8_t* bytes, size_t bit) { return (bytes[bit / 8] >> (bit % 8) & 1) != 0; }

// The expected result of a scan of all words.
struct Runs {
  std::vector<uint64_t> offsets;  // including that of a run that is open at the end
  std::vector<uint64_t> lengths;
};

// Bit by bit. `open_start`: the start of a run that is open at the beginning, if any.
Runs Expected(const Operation& operation, const uint8_t* a, const uint8_t* b, size_t words,
              uint64_t origin, unsigned shift, const uint64_t* open_start) {
  Runs runs;
  bool open = open_start != nullptr;
  if (open) runs.offsets.push_back(*open_start);
  for (size_t i = 0; i < words * 64; ++i) {
    const bool bit = operation.bit(BitOf(a, i), BitOf(b, i));
    const uint64_t offset = origin + (uint64_t{i} << shift);
    if (bit && !open) runs.offsets.push_back(offset);
    if (!bit && open) runs.lengths.push_back(offset - runs.offsets.back());
    open = bit;
  }
  return runs;
}

using simd::BitLayout;
using InLayout = simd::RunsOfEachOperation<simd::ExtractRunsInLayoutFn>;
constexpr simd::ExtractRunsInLayoutFn* InLayout::*kInLayout[] = {
    &InLayout::single, &InLayout::exclusive, &InLayout::and_not, &InLayout::either,
    &InLayout::both};

constexpr unsigned kLayouts = 32;
BitLayout LayoutOf(unsigned number) {
  return {.most_significant_first = number % 2 != 0,
          .reversed_word_bytes = 1u << (number / 2 % 4),
          .flip_a = number / 8 % 2 != 0 ? ~uint64_t{0} : 0,
          .flip_b = number / 16 != 0 ? ~uint64_t{0} : 0};
}

// The bits in the default layout, bit by bit.
std::vector<uint8_t> Plain(const BitLayout& layout, uint64_t flip, const uint8_t* bytes,
                           size_t words) {
  std::vector<uint8_t> plain(words * 8);
  for (size_t bit = 0; bit < words * 64; ++bit) {
    const size_t word = layout.reversed_word_bytes;
    const size_t in_word = bit / 8 % word;
    const size_t byte = bit / 8 - in_word + (word - 1 - in_word);
    const size_t place = layout.most_significant_first ? 7 - bit % 8 : bit % 8;
    const bool set = (bytes[byte] >> place & 1) != (flip & 1);
    plain[bit / 8] = static_cast<uint8_t>(plain[bit / 8] | (set ? 1u : 0u) << bit % 8);
  }
  return plain;
}

// Both arrays of a scan, each with a guard page after the places it may overwrite.
class Output {
 public:
  explicit Output(size_t max_room)
      : max_room_(max_room),
        offsets_((max_room + kRunSlack) * sizeof(uint64_t)),
        lengths_((max_room + kRunSlack) * sizeof(uint64_t)) {}
  // Arrays of exactly room + kRunSlack places.
  uint64_t* offsets(size_t room) const { return End(offsets_, room); }
  uint64_t* lengths(size_t room) const { return End(lengths_, room); }

 private:
  uint64_t* End(const GuardedMemory& memory, size_t room) const {
    return reinterpret_cast<uint64_t*>(memory.data()) + (max_room_ - room);
  }
  const size_t max_room_;
  const GuardedMemory offsets_;
  const GuardedMemory lengths_;
};

class ExtractRunsTest : public test::VariantTest<ExtractRunsKernels> {
 protected:
  static constexpr size_t kMaxWords = 600;

  // Compares one scan with the bit-by-bit answer; if given a layout, the scan uses it.
  void Check(const uint8_t* a, const uint8_t* b, size_t words, uint64_t origin, unsigned shift,
             bool open, const BitLayout* layout = nullptr) {
    ASSERT_LE(words, kMaxWords);
    const size_t room = words * 32 + 1;
    uint64_t* const offsets = out_.offsets(room);
    uint64_t* const lengths = out_.lengths(room);
    const uint64_t open_start = origin / 3;
    std::vector<uint8_t> plain_a;
    std::vector<uint8_t> plain_b;
    if (layout != nullptr) {
      plain_a = Plain(*layout, layout->flip_a, a, words);
      plain_b = Plain(*layout, layout->flip_b, b, words);
    }
    for (size_t i = 0; i < std::size(kOperations); ++i) {
      const Operation& operation = kOperations[i];
      const Runs want = Expected(operation, layout == nullptr ? a : plain_a.data(),
                                 layout == nullptr ? b : plain_b.data(), words, origin, shift,
                                 open ? &open_start : nullptr);
      if (open) offsets[0] = open_start;
      const uint64_t before = open ? 1 : 0;
      const RunScan scan =
          layout == nullptr
              ? (kernels().*operation.function)(a, b, words, origin, shift, before, offsets,
                                                lengths, room)
              : (kernels().in_layout.*kInLayout[i])(*layout, a, b, words, origin, shift, before,
                                                    offsets, lengths, room);
      const auto what = [&] {
        return absl::StrCat(operation.name, " of ", words, " words, origin ", origin, ", shift ",
                            shift, open ? ", open" : "",
                            layout == nullptr                ? ""
                            : layout->most_significant_first ? ", msb"
                                                             : ", lsb",
                            layout == nullptr ? 0 : layout->reversed_word_bytes);
      };
      ASSERT_EQ(scan.words, words) << what();
      ASSERT_EQ(scan.runs, want.lengths.size()) << what();
      ASSERT_EQ(scan.runs + scan.open, want.offsets.size()) << what();
      for (size_t run = 0; run < want.offsets.size(); ++run) {
        ASSERT_EQ(offsets[run], want.offsets[run]) << "run " << run << ", " << what();
      }
      for (size_t run = 0; run < want.lengths.size(); ++run) {
        ASSERT_EQ(lengths[run], want.lengths[run]) << "run " << run << ", " << what();
      }
    }
  }

 private:
  const Output out_{kMaxWords * 32 + 1};
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

TEST_P(ExtractRunsTest, MatchesBitByBitForEveryLengthAndPattern) {
  test::SeededRandom random(1);
  for (size_t words = 0; words <= 80; ++words) {
    GuardedMemory memory_a(words * 8);
    GuardedMemory memory_b(words * 8, GuardedMemory::Guard::kBefore);
    for (int p = 0; p < static_cast<int>(Pattern::kCount); ++p) {
      for (int q = 0; q < static_cast<int>(Pattern::kCount); ++q) {
        Fill(static_cast<Pattern>(p), random, memory_a.data(), words);
        Fill(static_cast<Pattern>(q), random, memory_b.data(), words);
        Check(memory_a.data(), memory_b.data(), words, random() % 100'000,
              static_cast<unsigned>(random() % 40), random() % 2 == 0);
        if (HasFatalFailure()) FAIL() << "patterns " << p << " and " << q;
      }
    }
  }
}

// Long enough for steps of every length, with quiet stretches in between.
TEST_P(ExtractRunsTest, MatchesBitByBitWhereTheDensityChanges) {
  test::SeededRandom random(5);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const size_t words = kMaxWords - random() % 70;
    GuardedMemory a(words * 8);
    GuardedMemory b(words * 8);
    for (size_t at = 0; at < words;) {
      const size_t part = std::min<size_t>(1 + random() % 150, words - at);
      for (GuardedMemory* memory : {&a, &b}) {
        Fill(static_cast<Pattern>(random() % static_cast<int>(Pattern::kCount)), random,
             memory->data() + at * 8, part);
      }
      if (random() % 2 == 0) std::memcpy(b.data() + at * 8, a.data() + at * 8, part * 8);
      at += part;
    }
    Check(a.data(), b.data(), words, 0, 12, round % 2 == 0);
    if (HasFatalFailure()) return;
  }
}

TEST_P(ExtractRunsTest, MatchesBitByBitInEveryLayoutAndLength) {
  test::SeededRandom random(7);
  for (size_t words = 0; words <= 40; ++words) {
    GuardedMemory a(words * 8);
    GuardedMemory b(words * 8, GuardedMemory::Guard::kBefore);
    for (unsigned number = 0; number < kLayouts; ++number) {
      const BitLayout layout = LayoutOf(number);
      for (int round = 0; round < 3; ++round) {
        for (GuardedMemory* memory : {&a, &b}) {
          Fill(static_cast<Pattern>(random() % static_cast<int>(Pattern::kCount)), random,
               memory->data(), words);
        }
        Check(a.data(), b.data(), words, random() % 100'000, static_cast<unsigned>(random() % 40),
              round == 0, &layout);
        if (HasFatalFailure()) FAIL() << "layout " << number;
      }
    }
  }
}

// Steps of every length and density, from every alignment.
TEST_P(ExtractRunsTest, MatchesBitByBitInEveryLayoutWhereTheDensityChanges) {
  test::SeededRandom random(8);
  for (unsigned round = 0; round < 4 * kLayouts; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const BitLayout layout = LayoutOf(round % kLayouts);
    const size_t words = kMaxWords - random() % 300;
    const size_t alignment = random() % 64;
    GuardedMemory a(words * 8 + alignment, GuardedMemory::Guard::kBefore);
    GuardedMemory b(words * 8);
    uint8_t* const first = a.data() + alignment;
    for (size_t at = 0; at < words;) {
      const size_t part = std::min<size_t>(1 + random() % 150, words - at);
      for (uint8_t* bytes : {first, b.data()}) {
        Fill(static_cast<Pattern>(random() % static_cast<int>(Pattern::kCount)), random,
             bytes + at * 8, part);
      }
      if (random() % 2 == 0) std::memcpy(b.data() + at * 8, first + at * 8, part * 8);
      at += part;
    }
    Check(first, b.data(), words, 0, 12, round % 3 == 0, &layout);
    if (HasFatalFailure()) return;
  }
}

// Every edge within a word, between empty and full words.
TEST_P(ExtractRunsTest, FindsARunOfEveryBeginningAndLengthInEveryLayout) {
  for (unsigned number = 0; number < 8; ++number) {
    const BitLayout layout = LayoutOf(number);
    for (unsigned begin = 0; begin < 64; ++begin) {
      for (unsigned length = 1; length <= 70; length += length < 8 ? 1 : 9) {
        std::vector<uint8_t> plain(40 * 8);
        for (unsigned bit = 0; bit < length; ++bit) {
          const unsigned at = 20 * 64 + begin + bit;
          plain[at / 8] = static_cast<uint8_t>(plain[at / 8] | 1u << at % 8);
        }
        // The layouts without inversion are their own inverses.
        const std::vector<uint8_t> bytes = Plain(layout, 0, plain.data(), 40);
        const std::vector<uint8_t> other(40 * 8);
        Check(bytes.data(), other.data(), 40, 0, 0, false, &layout);
        if (HasFatalFailure()) FAIL() << "layout " << number << ", bit " << begin;
      }
    }
  }
}

// Few words with edges between quiet ones, and runs that begin or end with a word.
TEST_P(ExtractRunsTest, FindsFewRunsBetweenQuietWordsInEveryLayout) {
  test::SeededRandom random(11);
  for (unsigned round = 0; round < 200; ++round) {
    const BitLayout layout = LayoutOf(round % 8);
    const size_t words = 60 + random() % 20;
    std::vector<uint8_t> plain(words * 8, random() % 2 == 0 ? 0 : 0xff);
    for (uint64_t run = random() % 7; run != 0; --run) {
      const uint64_t near_edge = random() % words * 64 + random() % 3;
      const uint64_t begin = near_edge - std::min<uint64_t>(near_edge, 1);
      const uint64_t length = random() % 3 == 0 ? 1 + random() % 5 : 62 + random() % 5;
      for (uint64_t bit = begin; bit < std::min(begin + length, uint64_t{words} * 64); ++bit) {
        plain[bit / 8] = static_cast<uint8_t>(plain[bit / 8] ^ 1u << bit % 8);
      }
    }
    const std::vector<uint8_t> bytes = Plain(layout, 0, plain.data(), words);
    const std::vector<uint8_t> other(words * 8);
    Check(bytes.data(), other.data(), words, 0, 12, round % 2 == 0, &layout);
    if (layout.reversed_word_bytes == 1 && !layout.most_significant_first) {
      Check(bytes.data(), other.data(), words, 0, 12, round % 2 == 0);
    }
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
}

// In every layout a scan stops at the same word as the scalar one.
TEST_P(ExtractRunsTest, StopsInEveryLayoutWhereTheScalarVariantStops) {
  constexpr size_t kWords = 300;
  test::SeededRandom random(9);
  std::vector<uint64_t> a(kWords, 0);
  for (unsigned number = 0; number < kLayouts; ++number) {
    const BitLayout layout = LayoutOf(number);
    for (uint64_t& word : a) word = random() % 4 == 0 ? random() & random() & random() : 0;
    const auto* bytes = reinterpret_cast<const uint8_t*>(a.data());
    for (size_t room = 1; room < 130; room += 1 + room / 9) {
      std::vector<uint64_t> offsets(room + kRunSlack);
      std::vector<uint64_t> lengths(room + kRunSlack);
      const RunScan want = simd::scalar::kExtractRuns.in_layout.single(
          layout, bytes, bytes, kWords, 0, 0, 0, offsets.data(), lengths.data(), room);
      const RunScan scan = kernels().in_layout.single(layout, bytes, bytes, kWords, 0, 0, 0,
                                                      offsets.data(), lengths.data(), room);
      ASSERT_EQ(scan.words, want.words) << "layout " << number << ", room " << room;
      ASSERT_EQ(scan.runs, want.runs) << "layout " << number << ", room " << room;
      ASSERT_EQ(scan.open, want.open) << "layout " << number << ", room " << room;
    }
  }
}

TEST_P(ExtractRunsTest, ReadsFromEveryAlignment) {
  test::SeededRandom random(2);
  constexpr size_t kWords = 67;
  for (size_t shift = 0; shift < 64; ++shift) {
    SCOPED_TRACE(absl::StrCat("alignment ", shift));
    GuardedMemory a(kWords * 8 + shift, GuardedMemory::Guard::kBefore);
    GuardedMemory b(kWords * 8 + 63 - shift, GuardedMemory::Guard::kBefore);
    Fill(Pattern::kClustered, random, a.data() + shift, kWords);
    Fill(Pattern::kSparse, random, b.data() + 63 - shift, kWords);
    Check(a.data() + shift, b.data() + 63 - shift, kWords, 0, 0, shift % 2 != 0);
    if (HasFatalFailure()) return;
  }
}

TEST_P(ExtractRunsTest, HandlesEverySixteenBitPatternAtEveryPlaceOfAWord) {
  const uint64_t other = 0;
  for (uint64_t pattern = 0; pattern < 65536; ++pattern) {
    for (unsigned place = 0; place < 4; ++place) {
      const uint64_t word = pattern << (place * 16);
      Check(reinterpret_cast<const uint8_t*>(&word), reinterpret_cast<const uint8_t*>(&other), 1,
            128, place, (pattern + place) % 2 == 0);
      if (HasFatalFailure()) FAIL() << "pattern " << pattern << " at place " << place;
    }
  }
}

// A scan that runs out of room stops after a whole word; continuing from there gives the rest.
TEST_P(ExtractRunsTest, StopsWhenTheRoomEndsAndContinues) {
  test::SeededRandom random(3);
  constexpr size_t kWords = 300;
  constexpr size_t kMaxRoom = 400;
  const Output out(kMaxRoom);
  std::vector<uint8_t> a(kWords * 8);
  std::vector<uint8_t> b(kWords * 8);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    Fill(static_cast<Pattern>(random() % static_cast<int>(Pattern::kCount)), random, a.data(),
         kWords);
    Fill(static_cast<Pattern>(random() % static_cast<int>(Pattern::kCount)), random, b.data(),
         kWords);
    for (const Operation& operation : kOperations) {
      const size_t room = 1 + random() % (round % 2 == 0 ? 8 : kMaxRoom);
      uint64_t* const offsets = out.offsets(room);
      uint64_t* const lengths = out.lengths(room);
      Runs got;
      uint64_t open = 0;
      uint64_t open_start = 0;
      for (size_t done = 0; done < kWords;) {
        offsets[0] = open_start;
        const RunScan scan =
            (kernels().*operation.function)(a.data() + done * 8, b.data() + done * 8, kWords - done,
                                            done * 64, 0, open, offsets, lengths, room);
        ASSERT_LE(scan.runs, room + 32);
        ASSERT_GT(scan.words, 0u);
        got.offsets.insert(got.offsets.end(), offsets, offsets + scan.runs);
        got.lengths.insert(got.lengths.end(), lengths, lengths + scan.runs);
        open = scan.open;
        open_start = offsets[scan.runs];
        done += scan.words;
      }
      if (open != 0) got.offsets.push_back(open_start);
      const Runs want = Expected(operation, a.data(), b.data(), kWords, 0, 0, nullptr);
      ASSERT_EQ(got.offsets, want.offsets) << operation.name << ", room " << room;
      ASSERT_EQ(got.lengths, want.lengths) << operation.name << ", room " << room;
    }
  }
}

// Found by fuzzing: out of room, a variant continued over quiet words and consumed more words than
// the scalar one.
TEST_P(ExtractRunsTest, StopsAtTheSameWordAsTheScalarVariant) {
  constexpr size_t kWords = 300;
  test::SeededRandom random(6);
  std::vector<uint64_t> a(kWords, 0);
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    for (uint64_t& word : a) word = random() % 4 == 0 ? random() & random() & random() : 0;
    if (round == 0) std::fill(a.begin(), a.end(), 0), a[0] = 0x5555555555555555u;
    const auto* bytes = reinterpret_cast<const uint8_t*>(a.data());
    for (size_t room = 1; room < 130; ++room) {
      std::vector<uint64_t> offsets(room + kRunSlack);
      std::vector<uint64_t> lengths(room + kRunSlack);
      const RunScan want = simd::scalar::kExtractRuns.single(bytes, bytes, kWords, 0, 0, 0,
                                                             offsets.data(), lengths.data(), room);
      const RunScan scan =
          kernels().single(bytes, bytes, kWords, 0, 0, 0, offsets.data(), lengths.data(), room);
      ASSERT_EQ(scan.words, want.words) << "room " << room;
      ASSERT_EQ(scan.runs, want.runs) << "room " << room;
      ASSERT_EQ(scan.open, want.open) << "room " << room;
    }
  }
}

// Sparse bitmaps that do not fit in the caches are read in another way.
TEST_P(ExtractRunsTest, FindsFewRunsOfLargeBitmaps) {
  constexpr size_t kSparse = 1 << 16;
  constexpr size_t kWords = kSparse + (size_t{4} << 20) / 8;
  constexpr size_t kRoom = 1 << 12;
  test::SeededRandom random(12);
  std::vector<uint64_t> a(kWords, 0);
  std::vector<uint64_t> b(kWords, 0);
  for (std::vector<uint64_t>* const bits : {&a, &b}) {
    for (uint64_t at = 0; at < kSparse * 64;) {
      const uint64_t length = random() % 4 == 0 ? random() % 9000 : 1 + random() % 3;
      const uint64_t end = std::min<uint64_t>(at + length, kSparse * 64);
      for (; at < end; ++at) (*bits)[at / 64] |= uint64_t{1} << at % 64;
      at += random() % 9000;
    }
  }
  const auto* const bytes = reinterpret_cast<const uint8_t*>(a.data());
  const auto* const others = reinterpret_cast<const uint8_t*>(b.data());
  std::vector<uint64_t> offsets[2];
  std::vector<uint64_t> lengths[2];
  for (size_t operation = 0; operation < std::size(kOperations); ++operation) {
    for (const unsigned number : {kLayouts, 1u, 12u, 27u}) {
      SCOPED_TRACE(absl::StrCat(kOperations[operation].name, ", layout ", number));
      RunScan scans[2];
      for (const bool scalar : {false, true}) {
        const ExtractRunsKernels& variant = scalar ? simd::scalar::kExtractRuns : kernels();
        std::vector<uint64_t>& starts = offsets[scalar ? 1 : 0];
        std::vector<uint64_t>& sizes = lengths[scalar ? 1 : 0];
        starts.assign(kRoom + kRunSlack, 0);
        sizes.assign(kRoom + kRunSlack, 0);
        scans[scalar ? 1 : 0] =
            number == kLayouts
                ? (variant.*kOperations[operation].function)(bytes, others, kWords, 0, 12, 0,
                                                             starts.data(), sizes.data(), kRoom)
                : (variant.in_layout.*kInLayout[operation])(LayoutOf(number), bytes, others, kWords,
                                                            0, 12, 0, starts.data(), sizes.data(),
                                                            kRoom);
        const size_t runs = scans[scalar ? 1 : 0].runs;
        starts.resize(runs + scans[scalar ? 1 : 0].open);
        sizes.resize(runs);
      }
      EXPECT_GT(scans[0].runs, 100u);
      EXPECT_EQ(scans[0].words, scans[1].words);
      EXPECT_EQ(scans[0].open, scans[1].open);
      EXPECT_EQ(offsets[0], offsets[1]);
      EXPECT_EQ(lengths[0], lengths[1]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, ExtractRunsTest,
                         testing::ValuesIn(test::AsVector(simd::ExtractRunsVariants())),
                         test::VariantName<ExtractRunsKernels>);

}  // namespace extract_runs_test
}  // namespace cbt

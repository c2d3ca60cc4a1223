// Every variant of every kernel against the scalar one: inputs of every length up to 8192 bytes, at
// every alignment, as close as it allows to a guard page before and after. (The other tests here
// compare the scalar variants with bit-by-bit code.)
//
// "Every length" takes CBT_TEST_SCALE=8; ctest runs the short ones, the longest, and some in
// between.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "simd/kernels.h"
#include "tests/simd/answer_parts.h"
#include "tests/support/figures.h"
#include "tests/support/guarded_memory.h"

namespace cbt {
namespace lengths_test {

using test::GuardedMemory;
using test::List;
using test::Number;
using Bytes = std::vector<uint8_t>;
using Numbers = std::vector<uint64_t>;

constexpr size_t kMaxBytes = 8192;
constexpr size_t kAlignments = 64;

// The lengths (bytes) up to kMaxBytes that are multiples of `unit`.
std::vector<size_t> Lengths(size_t unit) {
  std::vector<size_t> lengths;
  const size_t last = kMaxBytes / unit;
  for (size_t i = 0; i <= last; ++i) {
    if (test::TestScale() >= 8 || i <= 140 || i + 3 > last || i % 61 == 0) {
      lengths.push_back(i * unit);
    }
  }
  return lengths;
}

// An input's position: its first byte modulo 64, and the nearby guard page. At its natural position
// (the page after it: length and alignment fit; the page before it: alignment 0) it touches the
// guard page; otherwise less than 64 bytes are in between.
struct Place {
  size_t alignment;
  bool guard_after;
};

std::vector<Place> Places(size_t step) {
  std::vector<Place> places;
  for (size_t alignment = 0; alignment < kAlignments; alignment += step) {
    places.push_back({alignment, true});
    places.push_back({alignment, false});
  }
  return places;
}

// Memory between two guard pages. The bytes around an input are noise.
class Arena {
 public:
  Arena() : memory_(kBytes) { std::memset(memory_.data(), 0xa5, kBytes); }

  template <typename T>
  const uint8_t* Put(const std::vector<T>& data, const Place& place) const {
    const size_t size = data.size() * sizeof(T);
    const size_t from =
        place.guard_after ? (kBytes - size - place.alignment) / kAlignments * kAlignments : 0;
    uint8_t* const at = memory_.data() + from + place.alignment;
    if (size > 0) std::memcpy(at, data.data(), size);
    return at;
  }
  const uint64_t* PutNumbers(const Numbers& data, const Place& place) const {
    return reinterpret_cast<const uint64_t*>(Put(data, place));
  }

 private:
  static constexpr size_t kBytes = 3 * 4096 + 4096;
  const GuardedMemory memory_;
};

// Room for `count` results that end at a guard page.
template <typename T>
class Results {
 public:
  explicit Results(size_t most) : most_(most), memory_(most * sizeof(T)) {}
  T* Room(size_t count) const { return reinterpret_cast<T*>(memory_.data()) + (most_ - count); }

 private:
  const size_t most_;
  const GuardedMemory memory_;
};

constexpr uint64_t kSeed = 11;

// The levels at which families have their own variants; elsewhere they use a lower one.
const std::set<SimdLevel> kEveryLevel = {SimdLevel::kSse42, SimdLevel::kAvx2, SimdLevel::kAvx512,
                                         SimdLevel::kNeon};
const std::set<SimdLevel> kTupleLevels = {SimdLevel::kAvx2, SimdLevel::kAvx512};  // pdep and pext
const std::set<SimdLevel> kSortedLevels = {SimdLevel::kAvx512};                   // compress

class LengthsTest : public testing::Test {
 protected:
  // Runs `check` for every variant but the scalar one. Each of `levels` that is compiled in and
  // supported by this machine must have a variant that compares something; without any, the test is
  // skipped.
  template <typename Kernels, typename Check>
  void ForEachVariant(const std::string& family, const std::set<SimdLevel>& levels,
                      std::span<const simd::Variant<Kernels>> variants, Check check) {
    std::set<std::string> expected;
    for (const SimdLevel level : AvailableSimdLevels()) {
      if (levels.contains(level)) expected.insert(SimdLevelName(level));
    }
    std::set<std::string> compared;
    for (const simd::Variant<Kernels>& variant : variants) {
      if (variant.level == SimdLevel::kScalar || !simd::IsRunnable(variant.level)) continue;
      level_ = SimdLevelName(variant.level);
      const uint64_t before = inputs_;
      check(*variant.kernels);
      if (inputs_ > before) compared.insert(level_);
    }
    test::PrintFigure(absl::StrCat("r3_", family, "_variants"), compared.size());
    test::PrintFigure(absl::StrCat("r3_", family, "_inputs"), inputs_);
    test::PrintFigure(absl::StrCat("r3_", family, "_differences"), differences_);
    EXPECT_EQ(compared, expected) << family << ": the levels that were compared with scalar";
    if (expected.empty()) GTEST_SKIP() << "this machine or build has only scalar " << family;
  }

  // A kernel's answer to `bytes` of input. The parts are compared in order, because one may give
  // the length of the next.
  template <typename... Parts>
  void Compare(size_t bytes, const Place& place, const Parts&... parts) {
    ++inputs_;
    if ((parts.Same() && ...)) return;
    if (++differences_ >= 10) return;
    std::string difference;
    (void)((parts.Same() || (difference = parts.Difference(), false)) && ...);
    ADD_FAILURE() << level_ << ", " << bytes << " bytes at alignment " << place.alignment
                  << (place.guard_after ? " before a guard page" : " after a guard page") << ": "
                  << difference << " (seed " << kSeed << ", input " << inputs_ << ")";
  }

  std::mt19937_64 random_{kSeed};
  const Arena first_;
  const Arena second_;

 private:
  std::string level_;
  uint64_t inputs_ = 0;
  uint64_t differences_ = 0;
};

TEST_F(LengthsTest, CompareBlocks) {
  const Results<uint64_t> out(kMaxBytes / 64);
  ForEachVariant(
      "compare_blocks", kEveryLevel, simd::CompareBlocksVariants(),
      [&](const simd::CompareBlocksKernels& kernels) {
        for (const size_t bytes : Lengths(1)) {
          Bytes a(bytes);
          for (size_t i = 0; i < bytes; i += 1 + random_() % 9)
            a[i] = static_cast<uint8_t>(random_());
          Bytes b = a;
          // Often in the last bytes, where tails are.
          for (uint64_t n = random_() % 4; n > 0 && bytes > 0; --n) {
            const uint64_t back = random_() % (n % 2 == 0 ? bytes : std::min<size_t>(bytes, 70));
            b[bytes - 1 - back] ^= static_cast<uint8_t>(1 << random_() % 8);
          }
          Bytes difference(bytes);
          for (size_t i = 0; i < bytes; ++i) difference[i] = a[i] ^ b[i];
          constexpr size_t kSizes[] = {64, 512, 700, 1000, 4096, 8192, 100'000};
          const size_t block = kSizes[random_() % std::size(kSizes)];
          const size_t words = ((bytes + block - 1) / block + 63) / 64;
          Numbers want(words);
          simd::scalar::kCompareBlocks.compare(a.data(), b.data(), bytes, block, want.data());
          for (const Place& place : Places(1)) {
            uint64_t* const got = out.Room(words);
            const Place other = {kAlignments - 1 - place.alignment, place.guard_after};
            kernels.compare(first_.Put(a, place), second_.Put(b, other), bytes, block, got);
            Compare(bytes, place, List{"words", want.data(), got, words});
            kernels.nonzero(first_.Put(difference, place), bytes, block, got);
            Compare(bytes, place, List{"words", want.data(), got, words});
          }
        }
      });
}

// Bitmap words: quiet stretches, runs and single bits.
Bytes SomeBits(std::mt19937_64& random, size_t bytes) {
  Bytes bits(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    const uint64_t kind = random() % 40;
    if (kind == 0) bits[i] = static_cast<uint8_t>(random());
    if (kind == 1) {
      for (uint64_t n = random() % 40; n > 0 && i < bytes; --n, ++i) bits[i] = 0xff;
    }
  }
  return bits;
}

constexpr auto kRunOperations = {
    &simd::ExtractRunsKernels::single, &simd::ExtractRunsKernels::exclusive,
    &simd::ExtractRunsKernels::and_not, &simd::ExtractRunsKernels::either,
    &simd::ExtractRunsKernels::both};

TEST_F(LengthsTest, ExtractRuns) {
  constexpr size_t kMost = kMaxBytes * 4 + 1 + simd::kRunSlack;
  const Results<uint64_t> offsets(kMost);
  const Results<uint64_t> lengths(kMost);
  ForEachVariant("extract_runs", kEveryLevel, simd::ExtractRunsVariants(),
                 [&](const simd::ExtractRunsKernels& kernels) {
                   for (const size_t bytes : Lengths(8)) {
                     const Bytes a = SomeBits(random_, bytes);
                     const Bytes b = SomeBits(random_, bytes);
                     const auto shift = static_cast<unsigned>(random_() % 30);
                     const uint64_t open = random_() % 2;
                     for (const auto operation : kRunOperations) {
                       // Sometimes the room ends before the input does.
                       const size_t room = random_() % 3 == 0 ? 1 + random_() % 50 : bytes * 4 + 1;
                       Numbers want_offsets(room + simd::kRunSlack);
                       Numbers want_lengths(room + simd::kRunSlack);
                       want_offsets[0] = 77;
                       const simd::RunScan want = (simd::scalar::kExtractRuns.*operation)(
                           a.data(), b.data(), bytes / 8, 1000, shift, open, want_offsets.data(),
                           want_lengths.data(), room);
                       for (const Place& place : Places(1)) {
                         uint64_t* const o = offsets.Room(room + simd::kRunSlack);
                         uint64_t* const l = lengths.Room(room + simd::kRunSlack);
                         o[0] = 77;
                         const Place other = {kAlignments - 1 - place.alignment, place.guard_after};
                         const simd::RunScan got =
                             (kernels.*operation)(first_.Put(a, place), second_.Put(b, other),
                                                  bytes / 8, 1000, shift, open, o, l, room);
                         Compare(bytes, place, Number{"words", want.words, got.words},
                                 Number{"runs", want.runs, got.runs},
                                 Number{"open", want.open, got.open},
                                 List{"offsets", want_offsets.data(), o, got.runs + got.open},
                                 List{"lengths", want_lengths.data(), l, got.runs});
                       }
                     }
                   }
                 });
}

constexpr auto kCountOperations = {&simd::CountBitsKernels::single,
                                   &simd::CountBitsKernels::exclusive,
                                   &simd::CountBitsKernels::and_not,
                                   &simd::CountBitsKernels::either, &simd::CountBitsKernels::both};

TEST_F(LengthsTest, CountBits) {
  ForEachVariant("count_bits", kEveryLevel, simd::CountBitsVariants(),
                 [&](const simd::CountBitsKernels& kernels) {
                   for (const size_t bytes : Lengths(8)) {
                     const Bytes a = SomeBits(random_, bytes);
                     const Bytes b = SomeBits(random_, bytes);
                     const uint64_t open = random_() % 2;
                     for (const auto operation : kCountOperations) {
                       const simd::BitCounts want = (simd::scalar::kCountBits.*operation)(
                           a.data(), b.data(), bytes / 8, open);
                       for (const Place& place : Places(1)) {
                         const Place other = {kAlignments - 1 - place.alignment, place.guard_after};
                         const simd::BitCounts got = (kernels.*operation)(
                             first_.Put(a, place), second_.Put(b, other), bytes / 8, open);
                         Compare(bytes, place, Number{"ones", want.ones, got.ones},
                                 Number{"starts", want.starts, got.starts},
                                 Number{"open", want.open, got.open});
                       }
                     }
                   }
                 });
}

TEST_F(LengthsTest, LoadBits) {
  const Results<uint64_t> out(kMaxBytes / 8);
  ForEachVariant("load_bits", kEveryLevel, simd::LoadBitsVariants(),
                 [&](const simd::LoadBitsKernels& kernels) {
                   for (const size_t bytes : Lengths(8)) {
                     for (unsigned layout = 0; layout < 4; ++layout) {
                       const auto shift = static_cast<unsigned>(random_() % 8);
                       const bool reverse = layout % 2 != 0;
                       const bool invert = layout / 2 != 0;
                       Bytes from(bytes + (shift == 0 ? 0 : 1));
                       for (uint8_t& byte : from) byte = static_cast<uint8_t>(random_());
                       Numbers want(bytes / 8);
                       simd::scalar::kLoadBits.load(from.data(), shift, reverse, invert,
                                                    want.data(), bytes / 8);
                       for (const Place& place : Places(1)) {
                         uint64_t* const got = out.Room(bytes / 8);
                         kernels.load(first_.Put(from, place), shift, reverse, invert, got,
                                      bytes / 8);
                         Compare(bytes, place, List{"words", want.data(), got, want.size()});
                       }
                     }
                   }
                 });
}

// Strictly ascending values of a container.
std::vector<uint16_t> Ascending(std::mt19937_64& random, size_t count) {
  std::vector<uint16_t> values;
  uint64_t at = random() % 3;
  const uint64_t spread = count == 0 ? 1 : std::min<uint64_t>(60'000 / count, 300);
  while (values.size() < count) {
    values.push_back(static_cast<uint16_t>(at));
    at += random() % 3 == 0 ? 1 + random() % (2 * spread - 1) % (65'000 / count) : 1;
  }
  return values;
}

TEST_F(LengthsTest, ContainerValues) {
  constexpr size_t kMost = simd::kMaxArrayValues + simd::kContainerSlack;
  const Results<uint64_t> offsets(kMost);
  const Results<uint64_t> lengths(kMost);
  const Results<uint16_t> collected(kMost);
  ForEachVariant(
      "container_values", kEveryLevel, simd::ContainersVariants(),
      [&](const simd::ContainersKernels& kernels) {
        for (const size_t bytes : Lengths(2)) {
          const size_t count = bytes / 2;
          if (count == 0) continue;
          const std::vector<uint16_t> values = Ascending(random_, count);
          std::vector<uint16_t> wrong = values;
          const size_t at = random_() % 2 == 0 ? count - 1 : random_() % count;
          if (at > 0) wrong[at] = wrong[at - 1];
          const auto shift = static_cast<unsigned>(random_() % 30);
          Numbers want_offsets(kMost);
          Numbers want_lengths(kMost);
          const auto* const plain = reinterpret_cast<const uint8_t*>(values.data());
          const size_t want = simd::scalar::kContainers.expand_values(
              plain, count, 4096, shift, want_offsets.data(), want_lengths.data());
          Bytes words(kMaxBytes);
          for (const uint16_t v : values) words[v / 8] |= static_cast<uint8_t>(1 << v % 8);
          for (const Place& place : Places(1)) {
            uint64_t* const o = offsets.Room(count + simd::kContainerSlack);
            uint64_t* const l = lengths.Room(count + simd::kContainerSlack);
            const uint8_t* const input = first_.Put(values, place);
            const size_t got = kernels.expand_values(input, count, 4096, shift, o, l);
            Compare(bytes, place, Number{"extents", want, got},
                    List{"offsets", want_offsets.data(), o, got},
                    List{"lengths", want_lengths.data(), l, got});
            Compare(bytes, place, Number{"ascending", true, kernels.check_values(input, count)});
            Compare(bytes, place,
                    Number{"ascending, one value twice", at == 0,
                           kernels.check_values(second_.Put(wrong, place), count)});
          }
          const Place place = {count % kAlignments, count % 2 == 0};
          uint16_t* const c = collected.Room(count + simd::kContainerSlack);
          Compare(bytes, place,
                  Number{"values", count, kernels.collect_values(first_.Put(words, place), c)},
                  List{"values", values.data(), c, count});
        }
      });
}

TEST_F(LengthsTest, ContainerPairs) {
  constexpr size_t kMost = kMaxBytes / 4 + simd::kContainerSlack;
  const Results<uint64_t> offsets(kMost);
  const Results<uint64_t> lengths(kMost);
  ForEachVariant(
      "container_pairs", kEveryLevel, simd::ContainersVariants(),
      [&](const simd::ContainersKernels& kernels) {
        for (const size_t bytes : Lengths(4)) {
          const size_t count = bytes / 4;
          std::vector<uint16_t> pairs;
          uint64_t at = random_() % 5;
          for (size_t i = 0; i < count; ++i) {
            const uint64_t more = random_() % (60'000 / count / 2 + 1);
            pairs.push_back(static_cast<uint16_t>(at));
            pairs.push_back(static_cast<uint16_t>(more));
            at += more + 2 + random_() % 2;
          }
          // A run that touches the one before it, most often the last.
          std::vector<uint16_t> wrong = pairs;
          const size_t bad = count < 2            ? 0
                             : random_() % 2 == 0 ? count - 1
                                                  : 1 + random_() % (count - 1);
          if (bad > 0)
            wrong[2 * bad] = static_cast<uint16_t>(wrong[2 * bad - 2] + wrong[2 * bad - 1] + 1);
          const auto* const plain = reinterpret_cast<const uint8_t*>(pairs.data());
          const uint32_t blocks = simd::scalar::kContainers.check_pairs(plain, count);
          Numbers want_offsets(kMost);
          Numbers want_lengths(kMost);
          simd::scalar::kContainers.expand_pairs(plain, count, 4096, 3, want_offsets.data(),
                                                 want_lengths.data());
          for (const Place& place : Places(1)) {
            uint64_t* const o = offsets.Room(count + simd::kContainerSlack);
            uint64_t* const l = lengths.Room(count + simd::kContainerSlack);
            const uint8_t* const input = first_.Put(pairs, place);
            kernels.expand_pairs(input, count, 4096, 3, o, l);
            Compare(bytes, place, List{"offsets", want_offsets.data(), o, count},
                    List{"lengths", want_lengths.data(), l, count});
            Compare(bytes, place, Number{"blocks", blocks, kernels.check_pairs(input, count)});
            const uint32_t got = kernels.check_pairs(second_.Put(wrong, place), count);
            Compare(bytes, place, Number{"blocks, one pair wrong", bad == 0 ? blocks : 0, got});
          }
        }
      });
}

// Extents as in streams: offsets and sizes.
struct Extents {
  Numbers offsets;
  Numbers lengths;
};

Extents SomeExtents(std::mt19937_64& random, size_t count) {
  Extents extents;
  uint64_t at = random() % 2 * (random() >> 20);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t length = 1 + (random() >> (20 + random() % 40)) % (uint64_t{1} << 34);
    extents.offsets.push_back(at);
    extents.lengths.push_back(length);
    at += length + (random() % 3 == 0 ? 0 : random() % 5000);
  }
  return extents;
}

// Numbers are naturally aligned, so they start at 8 of the 64 positions; bytes start at all.
TEST_F(LengthsTest, EncodeTuples) {
  const Results<uint8_t> out(kMaxBytes / 8 * simd::kTupleBytes);
  ForEachVariant(
      "encode_tuples", kTupleLevels, simd::EncodeTuplesVariants(),
      [&](const simd::EncodeTuplesKernels& kernels) {
        for (const size_t bytes : Lengths(8)) {
          const size_t count = bytes / 8;
          const Extents extents = SomeExtents(random_, count);
          Bytes want(count * simd::kTupleBytes);
          for (const Place& place : Places(8)) {
            const size_t room = count * (14 + random_() % 9);  // any amount of output room
            const simd::TupleScan scan = simd::scalar::kEncodeTuples.encode(
                extents.offsets.data(), extents.lengths.data(), count, want.data(), room);
            const simd::TupleScan got = kernels.encode(first_.PutNumbers(extents.offsets, place),
                                                       second_.PutNumbers(extents.lengths, place),
                                                       count, out.Room(room), room);
            Compare(bytes, place, Number{"tuples", scan.tuples, got.tuples},
                    Number{"bytes", scan.bytes, got.bytes},
                    List{"encoding", want.data(), out.Room(room), scan.bytes});
          }
        }
      });
}

TEST_F(LengthsTest, DecodeTuples) {
  constexpr size_t kMost = kMaxBytes / 6 + 1;
  const Results<uint64_t> offsets(kMost);
  const Results<uint64_t> lengths(kMost);
  ForEachVariant(
      "decode_tuples", kTupleLevels, simd::DecodeTuplesVariants(),
      [&](const simd::DecodeTuplesKernels& kernels) {
        for (const size_t bytes : Lengths(1)) {
          // The length may cut a tuple anywhere.
          const size_t count = bytes / 6 + 1;
          const Extents extents = SomeExtents(random_, count);
          Bytes all(count * simd::kTupleBytes);
          simd::scalar::kEncodeTuples.encode(extents.offsets.data(), extents.lengths.data(), count,
                                             all.data(), all.size());
          all.resize(bytes);
          if (bytes > 0 && random_() % 4 == 0) all[random_() % bytes] ^= 1;
          Numbers want_offsets(kMost);
          Numbers want_lengths(kMost);
          const size_t room = random_() % 4 == 0 ? count / 2 + 1 : count;
          const simd::TupleScan want = simd::scalar::kDecodeTuples.decode(
              all.data(), bytes, want_offsets.data(), want_lengths.data(), room);
          for (const Place& place : Places(1)) {
            uint64_t* const o = offsets.Room(room);
            uint64_t* const l = lengths.Room(room);
            const simd::TupleScan got = kernels.decode(first_.Put(all, place), bytes, o, l, room);
            Compare(bytes, place, Number{"tuples", want.tuples, got.tuples},
                    Number{"bytes", want.bytes, got.bytes},
                    List{"offsets", want_offsets.data(), o, got.tuples},
                    List{"lengths", want_lengths.data(), l, got.tuples});
          }
        }
      });
}

TEST_F(LengthsTest, CheckTuples) {
  ForEachVariant("check_tuples", kEveryLevel, simd::CheckTuplesVariants(),
                 [&](const simd::CheckTuplesKernels& kernels) {
                   for (const size_t bytes : Lengths(8)) {
                     const size_t count = bytes / 8;
                     const Extents sound = SomeExtents(random_, count);
                     const uint64_t end =
                         count == 0 ? 1 : sound.offsets.back() + sound.lengths.back();
                     for (const Place& place : Places(8)) {
                       Extents extents = sound;
                       // No fault, or one in the last tuple or anywhere.
                       if (const uint64_t fault = random_() % 4; fault < 3 && count > 0) {
                         const size_t at = random_() % 2 == 0 ? count - 1 : random_() % count;
                         if (fault == 0) extents.lengths[at] = 0;
                         if (fault == 1) extents.lengths[at] += uint64_t{1} << 50;
                         if (fault == 2 && at > 0) extents.offsets[at] = extents.offsets[at - 1];
                       }
                       const simd::TupleRules rules = {0, end, end, 0};
                       const simd::TupleCheck want = simd::scalar::kCheckTuples.check(
                           extents.offsets.data(), extents.lengths.data(), count, rules);
                       const simd::TupleCheck got =
                           kernels.check(first_.PutNumbers(extents.offsets, place),
                                         second_.PutNumbers(extents.lengths, place), count, rules);
                       Compare(bytes, place, Number{"sound", want.sound, got.sound},
                               Number{"bytes", want.bytes, got.bytes},
                               Number{"offset_bits", want.offset_bits, got.offset_bits});
                     }
                   }
                 });
}

TEST_F(LengthsTest, SortedExtents) {
  constexpr size_t kMost = 2 * kMaxBytes / 8 + simd::kSortedSlack;
  const Results<uint64_t> starts(kMost);
  const Results<uint64_t> ends(kMost);
  const auto& scalar = simd::scalar::kSortedExtents;
  ForEachVariant(
      "sorted_extents", kSortedLevels, simd::SortedExtentsVariants(),
      [&](const simd::SortedExtentsKernels& kernels) {
        for (const size_t bytes : Lengths(8)) {
          const size_t count = bytes / 8;
          const Extents a = SomeExtents(random_, count);
          const Extents b = SomeExtents(random_, count / 2);
          // Lists only stay disjoint at alignment 1, and only disjoint lists have an overlap.
          const uint64_t alignment = uint64_t{1} << (random_() % 2 == 0 ? 0 : random_() % 20);
          const uint64_t gap = random_() % 2 == 0 ? 0 : random_() % 4000;
          // Of two lists each; then of both, and of their results.
          const auto bounds = [&](const Extents& extents) {
            Extents out{Numbers(extents.offsets.size()), Numbers(extents.offsets.size())};
            scalar.bounds(extents.offsets.data(), extents.lengths.data(), out.offsets.size(),
                          alignment, out.offsets.data(), out.lengths.data());
            return out;
          };
          const Extents left = bounds(a);
          const Extents right = bounds(b);
          const size_t total = count + count / 2;
          Extents merged{Numbers(total + simd::kSortedSlack), Numbers(total + simd::kSortedSlack)};
          scalar.merge({left.offsets.data(), left.lengths.data(), count},
                       {right.offsets.data(), right.lengths.data(), count / 2},
                       merged.offsets.data(), merged.lengths.data());
          Extents want{Numbers(kMost), Numbers(kMost)};
          for (const Place& place : Places(8)) {
            const auto compare = [&](const char* what, size_t found, size_t got, const uint64_t* s,
                                     const uint64_t* e) {
              Compare(bytes, place, Number{what, found, got},
                      List{"starts", want.offsets.data(), s, got},
                      List{"ends", want.lengths.data(), e, got});
            };
            uint64_t* s = starts.Room(count + simd::kSortedSlack);
            uint64_t* e = ends.Room(count + simd::kSortedSlack);
            kernels.bounds(first_.PutNumbers(a.offsets, place),
                           second_.PutNumbers(a.lengths, place), count, alignment, s, e);
            Compare(bytes, place, List{"bounds, starts", left.offsets.data(), s, count},
                    List{"bounds, ends", left.lengths.data(), e, count});
            Numbers some_starts(left.offsets.begin(), left.offsets.end());
            Numbers some_ends(left.lengths.begin(), left.lengths.end());
            const size_t united = scalar.unite(some_starts.data(), some_ends.data(), count, gap,
                                               want.offsets.data(), want.lengths.data());
            compare("united", united,
                    kernels.unite(first_.PutNumbers(some_starts, place),
                                  second_.PutNumbers(some_ends, place), count, gap, s, e),
                    s, e);
            s = starts.Room(total + simd::kSortedSlack);
            e = ends.Room(total + simd::kSortedSlack);
            kernels.merge({first_.PutNumbers(left.offsets, place),
                           second_.PutNumbers(left.lengths, place), count},
                          {right.offsets.data(), right.lengths.data(), count / 2}, s, e);
            Compare(bytes, place, List{"merged, starts", merged.offsets.data(), s, total},
                    List{"merged, ends", merged.lengths.data(), e, total});
            // overlap requires disjoint lists
            if (alignment != 1 || total * 8 > kMaxBytes) continue;
            const size_t common = scalar.overlap(merged.offsets.data(), merged.lengths.data(),
                                                 total, want.offsets.data(), want.lengths.data());
            const Numbers both_starts(merged.offsets.begin(),
                                      merged.offsets.begin() + static_cast<std::ptrdiff_t>(total));
            const Numbers both_ends(merged.lengths.begin(),
                                    merged.lengths.begin() + static_cast<std::ptrdiff_t>(total));
            compare("overlap", common,
                    kernels.overlap(first_.PutNumbers(both_starts, place),
                                    second_.PutNumbers(both_ends, place), total, s, e),
                    s, e);
          }
        }
      });
}

}  // namespace lengths_test
}  // namespace cbt

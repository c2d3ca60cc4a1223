#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "simd/kernels.h"
#include "tests/support/guarded_memory.h"
#include "tests/support/seeded_random.h"
#include "tests/support/variants.h"

namespace cbt {
namespace sorted_extents_test {

using simd::kSortedSlack;
using simd::SortedExtentsKernels;
using test::GuardedMemory;

using Numbers = std::vector<uint64_t>;
using Pairs = std::vector<std::pair<uint64_t, uint64_t>>;  // start, end

// An array that ends at a guard page.
class Guarded {
 public:
  explicit Guarded(const Numbers& numbers) : memory_(numbers.size() * 8) {
    std::copy(numbers.begin(), numbers.end(), get());
  }
  explicit Guarded(size_t places) : memory_(places * 8) {}
  uint64_t* get() const { return reinterpret_cast<uint64_t*>(memory_.data()); }

 private:
  const GuardedMemory memory_;
};

// Disjoint extents, some adjacent: far apart, close together, or at the end of the range.
Pairs AnyList(std::mt19937_64& random, size_t count, uint64_t from, uint64_t spread) {
  Pairs list;
  uint64_t at = from;
  for (size_t i = 0; i < count; ++i) {
    at += random() % 3 == 0 ? 0 : random() % spread;
    const uint64_t end = at + 1 + random() % spread;
    list.emplace_back(at, end);
    at = end;
  }
  return list;
}

class SortedExtentsTest : public test::VariantTest<SortedExtentsKernels> {
 protected:
  Numbers Merge(const Numbers& a, const Numbers& b) {
    // The same numbers with swapped roles: both arrays are merged independently.
    const Guarded left(a);
    const Guarded right(b);
    const Guarded out(a.size() + b.size() + kSortedSlack);
    const Guarded other(a.size() + b.size() + kSortedSlack);
    const size_t both = std::min(a.size(), b.size());
    kernels().merge({left.get(), left.get(), a.size()}, {right.get(), right.get(), b.size()},
                    out.get(), other.get());
    const Numbers merged(out.get(), out.get() + a.size() + b.size());
    EXPECT_EQ(merged, Numbers(other.get(), other.get() + a.size() + b.size()));
    // Starts from one pair and ends from the other, which interleave differently.
    kernels().merge({left.get(), right.get(), both}, {right.get(), right.get(), both}, out.get(),
                    other.get());
    Numbers want;
    std::merge(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(both), b.begin(),
               b.begin() + static_cast<std::ptrdiff_t>(both), std::back_inserter(want));
    EXPECT_EQ(want, Numbers(out.get(), out.get() + 2 * both));
    return merged;
  }

  template <typename Operation>
  Pairs Run(const Numbers& starts, const Numbers& ends, Operation operation) {
    const Guarded guarded_starts(starts);
    const Guarded guarded_ends(ends);
    const Guarded offsets(starts.size() + kSortedSlack);
    const Guarded lengths(starts.size() + kSortedSlack);
    const size_t count = operation(guarded_starts.get(), guarded_ends.get(), starts.size(),
                                   offsets.get(), lengths.get());
    Pairs extents;
    for (size_t i = 0; i < count; ++i) {
      extents.emplace_back(offsets.get()[i], offsets.get()[i] + lengths.get()[i]);
    }
    return extents;
  }
};

Numbers Starts(const Pairs& list) {
  Numbers starts;
  for (const auto& [start, end] : list) starts.push_back(start);
  return starts;
}

Numbers Ends(const Pairs& list) {
  Numbers ends;
  for (const auto& [start, end] : list) ends.push_back(end);
  return ends;
}

TEST_P(SortedExtentsTest, MergesEveryPairOfLengths) {
  test::SeededRandom random(1);
  for (size_t a = 0; a <= 70; ++a) {
    for (size_t b = 0; b <= 70; ++b) {
      Numbers left(a);
      Numbers right(b);
      // Many equal values, or the whole range, or one list entirely before the other.
      const uint64_t range = random() % 3 == 0 ? 5 : uint64_t{1} << (random() % 63);
      for (uint64_t& number : left) number = random() % range;
      for (uint64_t& number : right) number = random() % range + (random() % 50 == 0 ? range : 0);
      std::sort(left.begin(), left.end());
      std::sort(right.begin(), right.end());
      Numbers want;
      std::merge(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(want));
      ASSERT_EQ(Merge(left, right), want) << a << " and " << b << " numbers";
    }
  }
}

TEST_P(SortedExtentsTest, MergesListsThatFollowEachOther) {
  Numbers low(100);
  Numbers high(100);
  for (size_t i = 0; i < low.size(); ++i) {
    low[i] = i;
    high[i] = INT64_MAX - 100 + i;
  }
  Numbers want = low;
  want.insert(want.end(), high.begin(), high.end());
  EXPECT_EQ(Merge(low, high), want);
  EXPECT_EQ(Merge(high, low), want);
}

// Compared with a plain walk over extents sorted by their starts.
TEST_P(SortedExtentsTest, UnitesAnyNumberOfListsWithAnyGap) {
  test::SeededRandom random(2);
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const uint64_t from = round % 5 == 0 ? uint64_t{INT64_MAX} - 10'000 : random() % 100;
    Pairs all;
    for (uint64_t lists = 1 + random() % 4; lists > 0; --lists) {
      const Pairs list = AnyList(random, random() % 40, from, 1 + random() % 20);
      all.insert(all.end(), list.begin(), list.end());
    }
    std::sort(all.begin(), all.end());
    const uint64_t gap = random() % 4 == 0 ? uint64_t{INT64_MAX} : random() % 8;
    Pairs want;
    for (const auto& [start, end] : all) {
      if (want.empty() || (start > want.back().second && start - want.back().second > gap)) {
        want.emplace_back(start, end);
      } else {
        want.back().second = std::max(want.back().second, end);
      }
    }
    Numbers ends = Ends(all);
    std::sort(ends.begin(), ends.end());
    ASSERT_EQ(
        Run(Starts(all), ends,
            [&](const uint64_t* s, const uint64_t* e, size_t count, uint64_t* offsets,
                uint64_t* lengths) { return kernels().unite(s, e, count, gap, offsets, lengths); }),
        want);
  }
}

// Compared with bounds and unions of one extent after another.
TEST_P(SortedExtentsTest, JoinsRoundedExtentsAcrossCalls) {
  test::SeededRandom random(4);
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const uint64_t from = round % 5 == 0 ? uint64_t{INT64_MAX} - 10'000 : random() % 100;
    const Pairs list = AnyList(random, 1 + random() % 80, from, 1 + random() % 20);
    const uint64_t alignment = uint64_t{1} << (round % 5 == 0 ? 0 : random() % 7);
    const uint64_t gap = random() % 4 == 0 ? uint64_t{INT64_MAX} : random() % 8;
    // Above the last one, or in it.
    const auto& [last_start, last_end] = list.back();
    const uint64_t limit = random() % 2 == 0 ? uint64_t{INT64_MAX}
                                             : last_start + 1 + random() % (last_end - last_start);
    Pairs want;
    for (const auto& [start, end] : list) {
      const uint64_t begin = start / alignment * alignment;
      const uint64_t most = std::min((end + alignment - 1) / alignment * alignment, limit);
      if (want.empty() || (begin > want.back().second && begin - want.back().second > gap)) {
        want.emplace_back(begin, most);
      } else {
        want.back().second = most;
      }
    }
    // In parts: the last extent of each is left open.
    Pairs got;
    simd::OpenExtent open = {0, 0};
    for (size_t at = 0; at <= list.size();) {
      const size_t count = std::min<size_t>(random() % 40, list.size() - at);
      const Pairs part(list.begin() + static_cast<std::ptrdiff_t>(at),
                       list.begin() + static_cast<std::ptrdiff_t>(at + count));
      Numbers lengths;
      for (const auto& [start, end] : part) lengths.push_back(end - start);
      const Guarded starts(Starts(part));
      const Guarded sizes(lengths);
      const Guarded out_offsets(count + 1 + kSortedSlack);
      const Guarded out_lengths(count + 1 + kSortedSlack);
      const size_t joined =
          kernels().join(starts.get(), sizes.get(), count, {alignment, limit, gap}, open,
                         out_offsets.get(), out_lengths.get());
      for (size_t i = 0; i < joined; ++i) {
        got.emplace_back(out_offsets.get()[i], out_offsets.get()[i] + out_lengths.get()[i]);
      }
      at += count;
      if (at == list.size()) break;
    }
    got.emplace_back(open.start, open.end);
    ASSERT_EQ(got, want);
  }
}

// Compared with a byte set.
TEST_P(SortedExtentsTest, FindsWhatTwoListsHaveInCommon) {
  test::SeededRandom random(3);
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const uint64_t spread = 1 + random() % 12;
    const Pairs a = AnyList(random, random() % 40, random() % 20, spread);
    const Pairs b = AnyList(random, random() % 40, random() % 20, spread);
    std::set<uint64_t> in_a;
    std::set<uint64_t> want;
    for (const auto& [start, end] : a) {
      for (uint64_t i = start; i < end; ++i) in_a.insert(i);
    }
    for (const auto& [start, end] : b) {
      for (uint64_t i = start; i < end; ++i) {
        if (in_a.count(i) != 0) want.insert(i);
      }
    }
    Pairs all = a;
    all.insert(all.end(), b.begin(), b.end());
    Numbers starts = Starts(all);
    Numbers ends = Ends(all);
    std::sort(starts.begin(), starts.end());
    std::sort(ends.begin(), ends.end());
    const Pairs found =
        Run(starts, ends,
            [&](const uint64_t* s, const uint64_t* e, size_t count, uint64_t* offsets,
                uint64_t* lengths) { return kernels().overlap(s, e, count, offsets, lengths); });
    std::set<uint64_t> got;
    uint64_t last = 0;
    for (const auto& [start, end] : found) {
      ASSERT_LE(last, start);
      ASSERT_LT(start, end);
      last = end;
      for (uint64_t i = start; i < end; ++i) got.insert(i);
    }
    ASSERT_EQ(got, want);
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, SortedExtentsTest,
                         testing::ValuesIn(test::AsVector(simd::SortedExtentsVariants())),
                         test::VariantName<SortedExtentsKernels>);

}  // namespace sorted_extents_test
}  // namespace cbt

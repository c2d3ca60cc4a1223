// The sizes of all deltas of a history, against the union of its epochs' changes.
#include "programs/cbt/history/delta_sizes.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "tests/support/seeded_random.h"

namespace cbt::cli {
namespace delta_sizes_test {

constexpr uint64_t kVolume = 200;

using Epoch = std::vector<Extent>;  // ascending

// Some touch: a cursor may split an extent where a batch is full.
std::vector<Epoch> RandomHistory(std::mt19937& random) {
  std::vector<Epoch> history(1 + random() % 14);
  for (Epoch& epoch : history) {
    const uint64_t step = 1 + random() % 60;
    for (uint64_t at = random() % step; at < kVolume;) {
      const uint64_t length = std::min<uint64_t>(1 + random() % step, kVolume - at);
      epoch.push_back({at, length});
      at += length + random() % step;
    }
  }
  return history;
}

DeltaSizes Walk(const std::vector<Epoch>& history, const DeltaSizes::Limits& limits) {
  DeltaSizes sizes(limits);
  for (const Epoch& epoch : history) {
    for (const Extent& extent : epoch) sizes.Add(extent);
    sizes.EndEpoch();
  }
  return sizes;
}

// The sizes of all pairs, in the order of ForEachPair().
std::vector<uint64_t> Unions(const std::vector<Epoch>& history) {
  std::vector<uint64_t> sizes;
  for (size_t base = 0; base <= history.size(); ++base) {
    std::set<uint64_t> bytes;
    sizes.push_back(0);
    for (size_t epoch = base; epoch < history.size(); ++epoch) {
      for (const Extent& extent : history[epoch]) {
        for (uint64_t byte = extent.offset; byte < extent.end(); ++byte) bytes.insert(byte);
      }
      sizes.push_back(bytes.size());
    }
  }
  return sizes;
}

template <typename Check>
void ForEachPair(size_t epochs, const Check& check) {
  for (size_t base = 0; base <= epochs; ++base) {
    for (size_t target = base; target <= epochs; ++target) check(base, target);
  }
}

// Every pair is within its bounds, and adjacent ones are exact.
void CheckBounds(const std::vector<uint64_t>& unions, const DeltaSizes& sizes) {
  auto want = unions.begin();
  ForEachPair(sizes.epochs(), [&](size_t base, size_t target) {
    const SizeBounds got = sizes.Between(base, target);
    RC_ASSERT(got.least <= *want);
    RC_ASSERT(got.most >= *want);
    if (target <= base + 1) RC_ASSERT(got.least == got.most);
    ++want;
  });
  RC_ASSERT((want == unions.end()));
}

RC_GTEST_PROP(DeltaSizesTest, EveryPairIsExact, (uint32_t seed)) {
  std::mt19937 random(seed);
  const std::vector<Epoch> history = RandomHistory(random);
  const DeltaSizes sizes = Walk(history, {});
  const std::vector<uint64_t> unions = Unions(history);
  RC_ASSERT(sizes.epochs() == history.size());
  auto want = unions.begin();
  ForEachPair(history.size(), [&](size_t base, size_t target) {
    RC_ASSERT(sizes.Between(base, target) == (SizeBounds{*want, *want}));
    ++want;
  });
}

RC_GTEST_PROP(DeltaSizesTest, MergedRangesNeverHideWhatChanged, (uint32_t seed)) {
  std::mt19937 random(seed);
  const std::vector<Epoch> history = RandomHistory(random);
  CheckBounds(Unions(history), Walk(history, {.ranges = 1 + random() % 12}));
}

RC_GTEST_PROP(DeltaSizesTest, MergedAgesNeverHideWhatChanged, (uint32_t seed)) {
  std::mt19937 random(seed);
  const std::vector<Epoch> history = RandomHistory(random);
  const std::vector<uint64_t> unions = Unions(history);
  CheckBounds(unions, Walk(history, {.ranges = 1 + random() % 60, .entries = 1 + random() % 30}));
  DeltaSizes sizes = Walk(history, {});
  for (size_t before = sizes.entries(); sizes.Coarsen(); before = sizes.entries()) {
    RC_ASSERT(sizes.entries() <= before);
    CheckBounds(unions, sizes);
  }
  // Extents that never changed before, and one entry for the rest.
  RC_ASSERT(sizes.entries() <= 2 * history.size());
}

TEST(DeltaSizesTest, ALongHistoryStaysWithinItsLimits) {
  constexpr size_t kEpochs = 3000;
  test::SeededRandom random(7);
  DeltaSizes sizes({.ranges = 5000, .entries = 20'000});
  uint64_t extents = 0;
  for (size_t epoch = 1; epoch <= kEpochs; ++epoch) {
    uint64_t at = 0;
    for (int i = 0; i < 100; ++i) {
      at += 1 + random() % 10'000;
      const uint64_t length = 1 + random() % 1000;
      sizes.Add({at, length});
      at += length;
      ++extents;
    }
    sizes.EndEpoch();
    ASSERT_LE(sizes.entries(), 20'000U);
  }
  // An extent adds at most two ranges, itself and the rest of one that it cut, and shortens two;
  // every other range that it visits is removed.
  EXPECT_LE(sizes.visited(), 4 * extents);
}

}  // namespace delta_sizes_test
}  // namespace cbt::cli

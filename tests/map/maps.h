// Block sets for tests of change maps, in every container kind and at every container edge.
#ifndef CBT_TESTS_MAP_MAPS_H_
#define CBT_TESTS_MAP_MAPS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "cbt/change_map.h"
#include "cbt/cursor.h"
#include "tests/support/status.h"

namespace cbt::test {

// The oracle: ascending block indexes, each once.
using Blocks = std::vector<uint64_t>;

// The blocks that a cursor reports, including a partial last one.
inline Blocks BlocksOf(ExtentCursor& cursor) {
  Blocks blocks;
  const absl::Status status = ForEachBatch(cursor, [&](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      EXPECT_EQ(batch[i].offset % cursor.granularity(), 0u);
      const uint64_t end = BlockCount(batch[i].end(), cursor.granularity());
      for (uint64_t b = batch[i].offset / cursor.granularity(); b < end; ++b) blocks.push_back(b);
    }
    return absl::OkStatus();
  });
  EXPECT_OK(status);
  return blocks;
}

inline Blocks BlocksOf(const ChangeMapView& map) {
  return BlocksOf(*MakeBorrowedChangeMapCursor(map));
}

// Compares sets that may be too large to print; a failure names the first difference.
inline testing::AssertionResult SameBlocks(const Blocks& got, const Blocks& want) {
  const auto [a, b] = std::ranges::mismatch(got, want);
  if (a == got.end() && b == want.end()) return testing::AssertionSuccess();
  const bool extra = b == want.end() || (a != got.end() && *a < *b);
  return testing::AssertionFailure()
         << "block " << (extra ? *a : *b)
         << (extra ? " is there and was not expected" : " was expected and is not there");
}

// Checks that `map` contains all of `blocks`; a failure names the first missing one.
inline testing::AssertionResult HasBlocks(const ChangeMapView& map,
                                          const std::set<uint64_t>& blocks) {
  for (const uint64_t block : blocks) {
    if (map.Contains(block)) continue;
    return testing::AssertionFailure() << "expected block " << block << " in the map, which has "
                                       << map.cardinality() << " blocks but not that one";
  }
  return testing::AssertionSuccess();
}

// Values of one container. `random` chooses the kind, and cardinalities near 4096 are likely.
inline Blocks SomeContainer(std::mt19937_64& random) {
  Blocks values;
  const auto at_random = [&](uint64_t members) {
    std::vector<bool> set(65536);
    for (uint64_t n = 0; n < members;) {
      const size_t v = random() % 65536;
      if (!set[v]) ++n;
      set[v] = true;
    }
    for (size_t v = 0; v < set.size(); ++v) {
      if (set[v]) values.push_back(v);
    }
  };
  const auto all_but = [&](uint64_t first, uint64_t last) {
    for (uint64_t v = 0; v < 65536; ++v) {
      if (v < first || v > last) values.push_back(v);
    }
  };
  switch (random() % 12) {
    case 0:
      return {};
    case 1:
      return {0};
    case 2:
      return {65535};
    case 3:
      return {0, 65535};
    case 4:
      all_but(65536, 65536);
      break;
    case 5: {
      const uint64_t hole = random() % 65536;
      all_but(hole, hole + random() % 3);
      break;
    }
    case 6:
      at_random(1 + random() % 40);
      break;
    case 7:
      at_random(4094 + random() % 5);
      break;
    case 8:
      at_random(5000 + random() % 30000);
      break;
    case 9:  // every second value, as an array or a bitset
      for (uint64_t v = random() % 2, n = random() % 2 == 0 ? 4096 : 9000; v < 65536 && n > 0;
           v += 2, --n) {
        values.push_back(v);
      }
      break;
    case 10:  // runs
      for (uint64_t v = random() % 100; v < 65536; v += 1 + random() % 900) {
        for (uint64_t n = random() % 700; n > 0 && v < 65536; --n, ++v) values.push_back(v);
      }
      break;
    case 11: {  // about the number of runs at which runs and a bitset have the same size
      const uint64_t runs = 2045 + random() % 5;
      for (uint64_t i = 0; i < runs; ++i) {
        for (uint64_t k = 0; k < 5; ++k) values.push_back(i * 20 + k);
      }
      break;
    }
  }
  return values;
}

// A set of blocks below `end`, with containers at the given keys.
inline Blocks SomeBlocks(std::mt19937_64& random, const std::vector<uint64_t>& keys,
                         uint64_t end = UINT64_MAX) {
  Blocks blocks;
  for (const uint64_t key : keys) {
    for (const uint64_t value : SomeContainer(random)) {
      const uint64_t block = (key << 16) + value;
      if (block < end) blocks.push_back(block);
    }
  }
  return blocks;
}

// Keys on both sides of 2^16 and 2^32 blocks.
inline std::vector<uint64_t> EdgeKeys() { return {0, 1, 2, 7, 65534, 65535, 65536, 65537, 200000}; }

inline constexpr VolumeGeometry kEdgeVolume = {(uint64_t{200001} << 16) * 512, 512};

// A map of `blocks`, added one by one in shuffled order.
inline ChangeMap MapOf(Blocks blocks, const VolumeGeometry& geometry, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::shuffle(blocks.begin(), blocks.end(), random);
  ChangeMapBuilder builder = ValueOf(ChangeMapBuilder::Create(geometry));
  for (const uint64_t block : blocks) {
    EXPECT_OK(builder.AddBlocks(block, block + 1));
  }
  return ValueOf(builder.Build());
}

}  // namespace cbt::test

#endif  // CBT_TESTS_MAP_MAPS_H_

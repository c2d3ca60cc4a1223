// Which tuples a stream omits that starts inside a volume.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "cbt/wire/message.h"
#include "rpc/contract/resumption.h"

namespace cbt::rpc {
namespace starting_offset_test {

size_t Count(const TupleList& tuples, uint64_t starting_offset) {
  return CountTuplesBefore(tuples.offsets(), tuples.lengths(), starting_offset);
}

TEST(StartingOffset, LeavesOutWhatEndsAtOrBeforeIt) {
  const TupleList tuples = {{0, 10}, {10, 10}, {30, 10}};
  for (uint64_t offset = 0; offset <= 50; ++offset) {
    size_t expected = 0;
    for (const uint64_t end : {10u, 20u, 40u}) expected += end <= offset ? 1 : 0;
    EXPECT_EQ(Count(tuples, offset), expected) << offset;
  }
  EXPECT_EQ(Count({}, 7), 0u);
}

// One byte past the offset is enough to keep a tuple, and all tuples after it.
TEST(StartingOffset, KeepsEveryTupleThatReachesPastIt) {
  EXPECT_EQ(Count({{0, 4096}, {4096, 4096}}, 4095), 0u);
  EXPECT_EQ(Count({{0, 4096}, {4096, 4096}}, 4096), 1u);
  EXPECT_EQ(Count({{0, 4097}, {0, 1}, {1, 1}}, 4096), 0u);
  EXPECT_EQ(Count({{0, 1}, {100, 1}, {1, 1}}, 50), 1u);
}

// Peers send arbitrary values: an end that wraps around must not look like an early one.
TEST(StartingOffset, KeepsMalformedTuplesForTheChecks) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(Count({{0, 0}}, 100), 0u);
  EXPECT_EQ(Count({{0, 1}, {1, 0}, {1, 1}}, 100), 1u);
  EXPECT_EQ(Count({{kMax, 2}}, 100), 0u);
  EXPECT_EQ(Count({{50, kMax}}, 100), 0u);
  EXPECT_EQ(Count({{0, kMax}}, kMax), 1u);
}

}  // namespace starting_offset_test
}  // namespace cbt::rpc

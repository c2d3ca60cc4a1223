#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "cbt/memory.h"
#include "tests/support/cursors.h"
#include "tests/support/generators.h"
#include "tests/support/status.h"

namespace cbt {
namespace list_cursor_test {

using test::ValueOf;

using reference::Ranges;

TEST(ExtentListCursorTest, RefusesWhatIsNoSoundListAndNamesTheExtent) {
  const struct {
    std::vector<Extent> extents;
    uint64_t capacity;
    uint64_t granularity;
    const char* index;
  } cases[] = {
      {{{0, 0}}, 100, 1, "extent 0"},
      {{{0, 10}, {5, 10}}, 100, 1, "extent 1"},
      {{{50, 10}, {0, 10}}, 100, 1, "extent 1"},
      {{{0, 101}}, 100, 1, "extent 0"},
      {{{100, 1}}, 100, 1, "extent 0"},
      {{{1, UINT64_MAX}}, 100, 1, "extent 0"},
      {{{UINT64_MAX, 2}}, 100, 1, "extent 0"},
      {{{0, 8}, {16, 9}}, 100, 8, "extent 1"},
      {{{4, 8}}, 100, 8, "extent 0"},
  };
  for (const auto& c : cases) {
    const auto cursor =
        MakeExtentCursor(c.extents, {.capacity = c.capacity, .granularity = c.granularity});
    ASSERT_EQ(cursor.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(cursor.status().message()).find(c.index), std::string::npos)
        << cursor.status();
  }
  EXPECT_FALSE(MakeExtentCursor({}, {.capacity = uint64_t{1} << 63}).ok());
  EXPECT_FALSE(MakeExtentCursor({}, {.capacity = 1, .granularity = 0}).ok());
  // The end may be aligned to the granularity or equal to the capacity.
  EXPECT_OK(MakeExtentCursor({{96, 4}}, {.capacity = 100, .granularity = 8}));
}

TEST(ExtentListCursorTest, E7ReachesTheEdgeOfTheOffsets) {
  const uint64_t end = kMaxCapacity;
  const Ranges ranges = {
      {0, 1}, {(uint64_t{1} << 32) - 1, 2}, {(uint64_t{1} << 53) + 1, 4096}, {end - 1, 1}};
  auto cursor = test::CursorOver(ranges, end);
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), ranges);
  EXPECT_EQ(ValueOf(test::DrainFrom(*cursor, end - 1)), (Ranges{{end - 1, 1}}));
  EXPECT_EQ(ValueOf(test::DrainFrom(*cursor, end)), Ranges{});
}

RC_GTEST_PROP(ExtentListCursorProperty, ResumesAtEveryOffset, ()) {
  std::mt19937_64 random = test::AnyRandom();
  std::vector<bool> bytes(test::Between<size_t>(0, 200));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = random() % 3 != 0;
  const auto capacity = static_cast<uint64_t>(bytes.size());
  const auto full = reference::RunsOf(bytes);
  auto cursor = test::CursorOver(full, capacity);
  const auto batch = test::Between<size_t>(1, 5);
  RC_ASSERT(ValueOf(test::Drain(*cursor, batch)) == full);
  for (uint64_t offset = 0; offset <= capacity; ++offset) {
    RC_ASSERT(ValueOf(test::DrainFrom(*cursor, offset, batch)) == reference::CutAt(full, offset));
  }
}

}  // namespace list_cursor_test
}  // namespace cbt

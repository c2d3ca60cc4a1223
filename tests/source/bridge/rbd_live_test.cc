// The adapter for librbd's callback, on a fake librbd.
#include "cbt/bridge/rbd_live.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/reference/volume.h"
#include "tests/support/cursors.h"
#include "tests/support/generators.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace rbd_live_test {

using absl::StatusCode;
using reference::ByteSet;
using reference::Ranges;
using test::AnyRandom;
using test::Between;
using test::ValueOf;

// Reports the ranges of `set` in [offset, offset + length), rounded to whole objects if there are
// any, in an order of its own. Stops when the callback asks to, as librbd does.
struct FakeRbd {
  ByteSet set;
  uint64_t object = 1;
  bool shuffled = false;
  int fail_after = -1;
  int error = 0;
  int calls = 0;

  int Iterate(uint64_t offset, uint64_t length, RbdDiffCallback callback, void* context) {
    ++calls;
    ByteSet window(set.size());
    for (uint64_t i = offset; i < offset + length && i < set.size(); ++i) window[i] = set[i];
    Ranges ranges = reference::RunsOf(reference::RoundedOutward(window, object));
    if (shuffled) std::reverse(ranges.begin(), ranges.end());
    for (const auto& [begin, size] : ranges) {
      if (fail_after-- == 0) return error;
      const int result = callback(begin, size, begin % 2 == 0 ? 1 : 0, context);
      if (result < 0) return result;
    }
    return 0;
  }
};

RC_GTEST_PROP(RbdLive, AnyWindowAnyOrderTheSameRanges, ()) {
  std::mt19937_64 random = AnyRandom();
  FakeRbd rbd;
  rbd.set.resize(Between<size_t>(1, 300));
  const size_t density = Between<size_t>(1, 10);
  for (size_t i = 0; i < rbd.set.size(); ++i) rbd.set[i] = random() % density == 0;
  rbd.shuffled = random() % 2 == 0;
  rbd.object = random() % 2 == 0 ? 1 : 16;
  RbdCursorOptions options;
  options.capacity = rbd.set.size();
  options.granularity = rbd.object;
  options.window = rbd.object * Between<uint64_t>(1, 20);
  options.max_ranges = Between<size_t>(1, 8);
  const auto cursor = MakeRbdCursor(
      [&rbd](uint64_t offset, uint64_t length, RbdDiffCallback callback, void* context) {
        return rbd.Iterate(offset, length, callback, context);
      },
      options);
  test::RequireOk(cursor);
  const ByteSet expected = reference::RoundedOutward(rbd.set, rbd.object);
  RC_ASSERT(ValueOf(test::Drain(**cursor)) == reference::RunsOf(expected));
  const size_t start = random() % rbd.set.size() / rbd.object * rbd.object;
  test::RequireOk((*cursor)->Seek(start));
  ByteSet rest = expected;
  std::fill(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(start), false);
  RC_ASSERT(ValueOf(test::Drain(**cursor)) == reference::RunsOf(rest));
}

// A Ceph that reports nothing of an object unless asked from the object's start. No call may begin
// inside an object, whatever the window is and however often it is halved.
TEST(RbdCursor, E2WindowsBeginAtObjectsHoweverOftenTheyAreHalved) {
  constexpr uint64_t kSize = 1000;
  test::SeededRandom random(1);
  for (const uint64_t object : {uint64_t{1}, uint64_t{3}, uint64_t{16}, uint64_t{2000}}) {
    for (const uint64_t window : {uint64_t{1}, object - 1, object, object + 1, 3 * object - 1,
                                  7 * object + 5, uint64_t{100}, 5 * kSize, kMaxCapacity}) {
      if (window == 0) continue;
      for (const size_t max_ranges : {1u, 2u, 7u}) {
        // Byte ranges, so that one object may have more ranges than an answer holds.
        for (const bool whole : {false, true}) {
          SCOPED_TRACE(absl::StrCat("objects of ", object, ", window ", window, ", ", max_ranges,
                                    " ranges an answer", whole ? ", whole" : ""));
          FakeRbd rbd;
          rbd.set.resize(kSize);
          for (size_t i = 0; i < kSize; ++i) rbd.set[i] = i % 400 > 150 && random() % 3 == 0;
          rbd.object = whole ? object : 1;
          int inside = 0;
          const auto cursor = MakeRbdCursor(
              [&](uint64_t offset, uint64_t length, RbdDiffCallback callback, void* context) {
                if (offset % object == 0) return rbd.Iterate(offset, length, callback, context);
                ++inside;
                return 0;
              },
              {.capacity = kSize,
               .granularity = object,
               .window = window,
               .max_ranges = max_ranges});
          ASSERT_OK(cursor);
          const Ranges all = reference::RunsOf(reference::RoundedOutward(rbd.set, object));
          const auto ranges = test::Drain(**cursor);
          ASSERT_OK(ranges);
          EXPECT_EQ(*ranges, all);
          ASSERT_OK((*cursor)->Seek(kSize / 2 + 1));
          EXPECT_OK(test::Drain(**cursor));
          ASSERT_EQ(inside, 0);
        }
      }
    }
  }
}

TEST(RbdLive, E14AFailureIsNoEnd) {
  for (const auto& [error, code] :
       {std::pair(-ENOENT, StatusCode::kNotFound), std::pair(-EINVAL, StatusCode::kInvalidArgument),
        std::pair(-EIO, StatusCode::kUnavailable)}) {
    for (const int after : {0, 1, 2}) {
      FakeRbd rbd;
      rbd.set.resize(100);
      for (size_t i = 0; i < 100; i += 10) rbd.set[i] = true;
      rbd.fail_after = after;
      rbd.error = error;
      const auto cursor = MakeRbdCursor(
          [&rbd](uint64_t offset, uint64_t length, RbdDiffCallback callback, void* context) {
            return rbd.Iterate(offset, length, callback, context);
          },
          {.capacity = 100});
      ASSERT_OK(cursor);
      const auto ranges = test::Drain(**cursor);
      ASSERT_FALSE(ranges.ok());
      EXPECT_EQ(ranges.status().code(), code);
      EXPECT_LT((*cursor)->covered(), 100u);
    }
  }
}

TEST(RbdLive, QuietWindowsCostOneCallEach) {
  FakeRbd rbd;
  rbd.set.resize(1000);
  rbd.set[999] = true;
  const auto cursor = MakeRbdCursor(
      [&rbd](uint64_t offset, uint64_t length, RbdDiffCallback callback, void* context) {
        return rbd.Iterate(offset, length, callback, context);
      },
      {.capacity = 1000, .window = 100});
  EXPECT_EQ(ValueOf(test::Drain(**cursor)), (Ranges{{999, 1}}));
  EXPECT_EQ(rbd.calls, 10);
}

TEST(RbdLive, OptionsThatAreNone) {
  const auto iterate = [](uint64_t, uint64_t, RbdDiffCallback, void*) { return 0; };
  EXPECT_FALSE(MakeRbdCursor(iterate, {.capacity = 1, .window = 0}).ok());
  EXPECT_FALSE(MakeRbdCursor(iterate, {.capacity = 1, .max_ranges = 0}).ok());
  EXPECT_FALSE(MakeRbdCursor(iterate, {.capacity = ~uint64_t{0}}).ok());
  EXPECT_OK(MakeRbdCursor(iterate, {}));
}

}  // namespace rbd_live_test
}  // namespace cbt

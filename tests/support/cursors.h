// Runs cursors.
#ifndef CBT_TESTS_SUPPORT_CURSORS_H_
#define CBT_TESTS_SUPPORT_CURSORS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/cursor.h"
#include "cbt/memory.h"
#include "tests/reference/volume.h"
#include "tests/support/status.h"

namespace cbt::test {

// Everything that `cursor` has left, in batches of `batch_capacity`. Fails as the cursor does, or
// if the cursor does not end.
inline absl::StatusOr<reference::Ranges> Drain(ExtentCursor& cursor, size_t batch_capacity = 7) {
  reference::Ranges ranges;
  ExtentBatch batch(batch_capacity);
  for (int calls = 0; calls < 10'000'000; ++calls) {
    absl::StatusOr<Step> step = cursor.Next(batch);
    if (!step.ok()) return step.status();
    for (size_t i = 0; i < batch.size(); ++i) ranges.emplace_back(batch[i].offset, batch[i].length);
    if (*step == Step::kComplete) return ranges;
  }
  return absl::InternalError("the cursor does not come to an end");
}

// The same from `offset` on.
inline absl::StatusOr<reference::Ranges> DrainFrom(ExtentCursor& cursor, uint64_t offset,
                                                   size_t batch_capacity = 7) {
  if (absl::Status status = cursor.Seek(offset); !status.ok()) return status;
  return Drain(cursor, batch_capacity);
}

// The ranges of a map.
inline reference::Ranges RangesOf(const ChangeMapView& map) {
  return ValueOf(Drain(*MakeBorrowedChangeMapCursor(map)));
}

// Compares lists that may be too long to print; a failure names the first difference.
inline testing::AssertionResult SameRanges(const reference::Ranges& got,
                                           const reference::Ranges& want) {
  const auto [a, b] = std::ranges::mismatch(got, want);
  if (a == got.end() && b == want.end()) return testing::AssertionSuccess();
  const auto text = [](const reference::Ranges& ranges, auto at) {
    return at == ranges.end() ? "the end" : testing::PrintToString(*at);
  };
  return testing::AssertionFailure() << "range " << a - got.begin() << ": expected "
                                     << text(want, b) << ", got " << text(got, a);
}

// A cursor over ranges that are known to be valid.
inline std::unique_ptr<ExtentCursor> CursorOver(const reference::Ranges& ranges, uint64_t capacity,
                                                uint64_t granularity = 1) {
  std::vector<Extent> extents;
  for (const auto& [offset, length] : ranges) extents.push_back({offset, length});
  return ValueOf(
      MakeExtentCursor(std::move(extents), {.capacity = capacity, .granularity = granularity}));
}

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_CURSORS_H_

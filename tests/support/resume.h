// Checks for every kind of cursor that Seek(s) gives the full answer cut at s.
#ifndef CBT_TESTS_SUPPORT_RESUME_H_
#define CBT_TESTS_SUPPORT_RESUME_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/cursor.h"
#include "tests/reference/volume.h"
#include "tests/support/figures.h"

namespace cbt::test {

class ResumeCheck {
 public:
  // `full`: the answer from 0, from an oracle. `pieces`: the cursor may split an extent into
  // adjacent ones. `batch`: extents per call.
  explicit ResumeCheck(std::string name, reference::Ranges full, bool pieces = false,
                       size_t batch = 16)
      : name_(std::move(name)), full_(std::move(full)), pieces_(pieces), batch_(batch) {}

  // Reads from `start` to the end, or for `most` calls, and compares each extent, the coverage and
  // the end with the full answer.
  void From(ExtentCursor& cursor, uint64_t start, size_t most = SIZE_MAX) {
    ++offsets_;
    if (most == SIZE_MAX) ++to_the_end_;
    const testing::AssertionResult resumes = Resumes(cursor, start, most);
    if (resumes) return;
    if (++wrong_ < 10) ADD_FAILURE() << name_ << " from " << start << ": " << resumes.message();
  }

  // From every offset, including the capacity. With `whole` > 1, only each `whole`-th is read to
  // the end and the others for two calls, for cursors that must read what they compare.
  void EveryOffset(ExtentCursor& cursor, uint64_t whole = 1) {
    for (uint64_t start = 0; start <= cursor.capacity(); ++start) {
      From(cursor, start, start % whole == 0 ? SIZE_MAX : 2);
    }
  }

  // From `count` offsets: anywhere, inside an extent, or within a byte of an edge.
  void RandomOffsets(ExtentCursor& cursor, uint64_t count) {
    constexpr uint64_t kSeed = 1;
    const testing::ScopedTrace trace(__FILE__, __LINE__, absl::StrCat("seed ", kSeed));
    std::mt19937_64 random(kSeed);
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t start = random() % (cursor.capacity() + 1);
      if (i % 4 != 0 && !full_.empty()) {
        const auto& [offset, length] = full_[random() % full_.size()];
        if (i % 4 == 1) {
          From(cursor, offset + random() % length);
          continue;
        }
        start = offset + (random() % 2 == 0 ? 0 : length) + random() % 3;
        start = std::min(start - std::min<uint64_t>(start, 1), cursor.capacity());
      }
      From(cursor, start);
    }
  }

  ~ResumeCheck() {
    PrintFigure(absl::StrCat("r4_", name_, "_offsets"), offsets_);
    if (to_the_end_ != offsets_) {
      PrintFigure(absl::StrCat("r4_", name_, "_offsets_to_the_end"), to_the_end_);
    }
    PrintFigure(absl::StrCat("r4_", name_, "_wrong"), wrong_);
  }
  ResumeCheck(const ResumeCheck&) = delete;
  ResumeCheck& operator=(const ResumeCheck&) = delete;

 private:
  // Succeeds if the cursor gives the full answer cut at `start`; otherwise reports the call, the
  // expected and the actual value.
  testing::AssertionResult Resumes(ExtentCursor& cursor, uint64_t start, size_t most) {
    if (const absl::Status sought = cursor.Seek(start); !sought.ok()) {
      return testing::AssertionFailure() << "Seek(): " << sought;
    }
    const bool at_the_end = start == cursor.capacity();
    uint64_t floor = at_the_end ? start : start - start % cursor.granularity();
    auto next = at_the_end ? full_.end()
                           : std::upper_bound(full_.begin(), full_.end(), floor,
                                              [](uint64_t offset, const auto& range) {
                                                return offset < range.first + range.second;
                                              });
    // The rest of the next extent.
    const auto expected = [&] {
      if (next == full_.end()) return std::string("the end");
      const uint64_t offset = std::max(next->first, floor);
      return absl::StrCat("[", offset, ", ", next->first + next->second, ")");
    };
    for (size_t calls = 0; calls < most; ++calls) {
      const absl::StatusOr<Step> step = cursor.Next(batch_);
      if (!step.ok()) {
        return testing::AssertionFailure()
               << "call " << calls << ": expected " << expected() << ", got " << step.status();
      }
      for (size_t i = 0; i < batch_.size(); ++i) {
        const Extent extent = batch_[i];
        const uint64_t end = next == full_.end() ? 0 : next->first + next->second;
        if (next == full_.end() || extent.offset != std::max(next->first, floor) ||
            extent.length == 0 || extent.end() > end || (extent.end() != end && !pieces_)) {
          return testing::AssertionFailure()
                 << "call " << calls << ", extent " << i << ": expected " << expected() << ", got ["
                 << extent.offset << ", " << extent.end() << ")";
        }
        floor = extent.end();
        if (floor == end) ++next;
      }
      // Nothing that is still to come may be covered.
      if (next != full_.end() && cursor.covered() > std::max(next->first, floor)) {
        return testing::AssertionFailure()
               << "call " << calls << ": " << expected() << " is still to come, but covered() is "
               << cursor.covered();
      }
      if (*step != Step::kComplete) continue;
      if (next == full_.end()) return testing::AssertionSuccess();
      return testing::AssertionFailure()
             << "call " << calls << ": expected " << expected() << ", got the end";
    }
    return testing::AssertionSuccess();
  }

  const std::string name_;
  const reference::Ranges full_;
  const bool pieces_;
  ExtentBatch batch_;
  uint64_t offsets_ = 0;
  uint64_t to_the_end_ = 0;
  uint64_t wrong_ = 0;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_RESUME_H_

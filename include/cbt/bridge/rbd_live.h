// A live Ceph RBD image as a cursor, through librbd's own callback. Header-only, and without Ceph's
// headers or libraries: the caller passes in a function that calls rbd_diff_iterate2().
//
// snippet: tests/consumer/snippets/source.cc#rbd
//   auto cursor = cbt::MakeRbdCursor(
//       [image](uint64_t offset, uint64_t length, cbt::RbdDiffCallback callback, void* context) {
//         return rbd_diff_iterate2(image, "monday", offset, length, /*include_parent=*/1,
//                                  /*whole_object=*/0, callback, context);
//       },
//       {.capacity = size_of_tuesday});
//
// With a null base name the cursor reports what is allocated. With whole_object, which is fast if
// the image has a fast-diff map, ranges are whole objects. See
// https://docs.ceph.com/en/latest/rbd/api/librbdpy/ and librbd.h.
#ifndef CBT_BRIDGE_RBD_LIVE_H_
#define CBT_BRIDGE_RBD_LIVE_H_

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/transform.h"
#include "cbt/units.h"

namespace cbt {

// librbd's callback: bytes [offset, offset + length); `exists` is 0 for a discarded range. Only a
// negative return value stops the iteration.
using RbdDiffCallback = int (*)(uint64_t offset, size_t length, int exists, void* context);

struct RbdCursorOptions {
  // Size of the target in bytes.
  uint64_t capacity = 0;

  // The unit in which the storage reports changes; 1: bytes, as librbd does.
  uint64_t granularity = 1;

  // Bytes of the image per call, rounded down to whole units of the granularity, at least one.
  // Smaller if an answer has too many ranges.
  uint64_t window = 4 * kGiB;

  // The most ranges per call; a window with more is split in halves. A single unit of the
  // granularity with more counts as changed in full.
  size_t max_ranges = size_t{1} << 16;
};

namespace rbd_internal {

struct Answer {
  std::vector<Extent> ranges;
  uint64_t begin = 0;
  uint64_t end = 0;
  size_t max_ranges = 0;
  bool too_many = false;
};

// No exception may pass through librbd: the vector has its capacity reserved.
inline int Collect(uint64_t offset, size_t length, int, void* context) noexcept {
  auto& answer = *static_cast<Answer*>(context);
  // Whole objects may reach out of the window; the neighbouring window reports that part.
  const uint64_t end = length > kMaxCapacity || offset > kMaxCapacity - length
                           ? answer.end
                           : std::min<uint64_t>(offset + length, answer.end);
  const uint64_t begin = std::max(offset, answer.begin);
  if (begin >= end) return 0;
  if (!answer.ranges.empty() && answer.ranges.back().end() == begin) {
    answer.ranges.back().length += end - begin;
    return 0;
  }
  if (answer.ranges.size() == answer.max_ranges) {
    answer.too_many = true;
    return -EOVERFLOW;
  }
  answer.ranges.push_back({begin, end - begin});
  return 0;
}

inline absl::Status ErrorOf(int error, uint64_t begin, uint64_t end) {
  const std::string text = "rbd_diff_iterate2: bytes " + std::to_string(begin) + " to " +
                           std::to_string(end) + ": " + std::generic_category().message(error);
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(text + " (is the base snapshot there?)");
    case EINVAL:
      return absl::InvalidArgumentError(text + " (is the base older than the target?)");
    default:
      return absl::UnavailableError(text);
  }
}

template <typename Iterate>
class Cursor final : public ExtentCursor {
 public:
  Cursor(Iterate iterate, const RbdCursorOptions& options)
      : ExtentCursor({.capacity = options.capacity, .granularity = options.granularity}),
        iterate_(std::move(iterate)),
        most_(WholeUnits(options.window)),
        window_(most_) {
    answer_.max_ranges = options.max_ranges;
    answer_.ranges.reserve(options.max_ranges);
  }

 private:
  // `bytes` in whole units of the granularity, at least one. Calls never start inside an object,
  // since a version of Ceph then reported ranges that lay elsewhere: windows of whole units keep a
  // position at the beginning of a unit.
  uint64_t WholeUnits(uint64_t bytes) const noexcept {
    return std::max(AlignDown(bytes, granularity()), granularity());
  }

  absl::Status DoSeek(uint64_t offset) override {
    position_ = offset;
    answer_.ranges.clear();
    next_ = 0;
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (next_ == answer_.ranges.size()) {
      if (absl::Status status = Ask(); !status.ok()) return status;
    }
    while (!batch.full() && next_ < answer_.ranges.size()) batch.push_back(answer_.ranges[next_++]);
    return next_ < answer_.ranges.size() ? answer_.ranges[next_].offset : position_;
  }

  // Gets the ranges of the next window, all of them.
  absl::Status Ask() {
    next_ = 0;
    for (;;) {
      const uint64_t length = std::min(window_, capacity() - position_);
      answer_.ranges.clear();
      answer_.too_many = false;
      answer_.begin = position_;
      answer_.end = position_ + length;
      RbdDiffCallback callback = &Collect;
      const int result = iterate_(position_, length, callback, static_cast<void*>(&answer_));
      if (answer_.too_many) {
        answer_.ranges.clear();
        if (length > granularity()) {
          window_ = WholeUnits(length / 2);
          continue;
        }
        // One unit can only be reported in full.
        answer_.ranges.push_back({position_, length});
        break;
      }
      if (result < 0) {
        answer_.ranges.clear();
        return ErrorOf(-result, answer_.begin, answer_.end);
      }
      if (answer_.ranges.size() < answer_.max_ranges / 4) {
        window_ = std::min(most_, window_ * 2);
      }
      break;
    }
    // Striped images are not reported in order.
    std::sort(answer_.ranges.begin(), answer_.ranges.end(),
              [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
    size_t kept = 0;
    for (const Extent& range : answer_.ranges) {
      if (kept > 0 && range.offset <= answer_.ranges[kept - 1].end()) {
        Extent& last = answer_.ranges[kept - 1];
        last.length = std::max(last.end(), range.end()) - last.offset;
      } else {
        answer_.ranges[kept++] = range;
      }
    }
    answer_.ranges.resize(kept);
    position_ = answer_.end;
    return absl::OkStatus();
  }

  Iterate iterate_;
  const uint64_t most_;
  uint64_t window_;  // bytes per call: fewer where there are many ranges
  Answer answer_;
  size_t next_ = 0;        // index into the ranges of the answer
  uint64_t position_ = 0;  // asked about below this offset
};

}  // namespace rbd_internal

// A cursor over what `iterate` reports. Next() calls it, on its own thread, as int(uint64_t offset,
// uint64_t length, RbdDiffCallback, void* context) with ascending windows that begin at multiples
// of the granularity. Ranges are sorted, merged and cut at the window. Seek() O(1).
// Errors: INVALID_ARGUMENT for the options. From Next(): NOT_FOUND, INVALID_ARGUMENT or UNAVAILABLE
//         depending on librbd's result; a failed iteration never looks like the end.
template <typename Iterate>
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeRbdCursor(Iterate iterate,
                                                            const RbdCursorOptions& options) {
  if (absl::Status status =
          CheckGeometry({.capacity = options.capacity, .granularity = options.granularity});
      !status.ok()) {
    return status;
  }
  if (options.window == 0 || options.window > kMaxCapacity || options.max_ranges == 0) {
    return absl::InvalidArgumentError("rbd cursor: the window and the ranges must be above 0");
  }
  std::unique_ptr<ExtentCursor> cursor =
      std::make_unique<rbd_internal::Cursor<Iterate>>(std::move(iterate), options);
  // Runs continue from one window to the next.
  if (options.granularity > 1) return AlignOutward(std::move(cursor), options.granularity);
  return Coalesce(std::move(cursor));
}

}  // namespace cbt

#endif  // CBT_BRIDGE_RBD_LIVE_H_

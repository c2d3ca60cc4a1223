#include "cbt/requested_cursor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/transform.h"

namespace cbt {
namespace {

// Passes on and keeps what it passed on until somebody has compared with it.
class RecordingCursor final : public ExtentCursor {
 public:
  explicit RecordingCursor(std::unique_ptr<ExtentCursor> input) noexcept
      : ExtentCursor(input->capacity(), input->granularity()), input_(std::move(input)) {}

  // Bytes of the input's extents inside [begin, end); forgets what lies before `end`. Calls come
  // with ascending ranges.
  uint64_t Take(uint64_t begin, uint64_t end) noexcept {
    uint64_t bytes = 0;
    while (next_ < seen_.size() && seen_[next_].offset < end) {
      const Extent extent = seen_[next_];
      const uint64_t from = std::max(extent.offset, begin);
      const uint64_t to = std::min(extent.end(), end);
      if (from < to) bytes += to - from;
      if (extent.end() > end) break;
      ++next_;
    }
    if (next_ == seen_.size()) {
      seen_.clear();
      next_ = 0;
    }
    return bytes;
  }

 private:
  absl::Status DoSeek(uint64_t offset) override {
    seen_.clear();
    next_ = 0;
    return input_->Seek(offset);
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    absl::StatusOr<Step> step = input_->Next(batch);
    if (!step.ok()) return step.status();
    // What was compared already makes room.
    if (next_ > 4 * ExtentBatch::kDefaultCapacity) {
      seen_.erase(seen_.begin(), seen_.begin() + static_cast<std::ptrdiff_t>(next_));
      next_ = 0;
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      const Extent extent = {batch[i].offset,
                             std::min(batch[i].length, capacity() - batch[i].offset)};
      batch.mutable_lengths()[i] = extent.length;
      // Touching ones count as one, so that a long bridge over many doesn't grow the list for ever.
      if (seen_.size() > next_ && seen_.back().end() == extent.offset) {
        seen_.back().length += extent.length;
      } else {
        seen_.push_back(extent);
      }
    }
    return input_->covered();
  }

  const std::unique_ptr<ExtentCursor> input_;
  std::vector<Extent> seen_;
  size_t next_ = 0;
};

class RequestedCursorImpl final : public RequestedCursor {
 public:
  RequestedCursorImpl(std::unique_ptr<ExtentCursor> shaped, RecordingCursor& recording) noexcept
      : RequestedCursor(shaped->capacity(), shaped->granularity()),
        shaped_(std::move(shaped)),
        recording_(recording) {}

  uint64_t bytes() const noexcept override { return bytes_; }
  uint64_t added_bytes() const noexcept override { return bytes_ - known_; }

 private:
  absl::Status DoSeek(uint64_t offset) override {
    bytes_ = known_ = 0;
    return shaped_->Seek(offset);
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    absl::StatusOr<Step> step = shaped_->Next(batch);
    if (!step.ok()) return step.status();
    for (size_t i = 0; i < batch.size(); ++i) {
      bytes_ += batch[i].length;
      known_ += recording_.Take(batch[i].offset, batch[i].end());
    }
    return shaped_->covered();
  }

  const std::unique_ptr<ExtentCursor> shaped_;
  RecordingCursor& recording_;  // at the other end of shaped_
  uint64_t bytes_ = 0;
  uint64_t known_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RequestedCursor>> MakeRequestedCursor(
    std::unique_ptr<ExtentCursor> input, const Requested& requested) {
  if (input == nullptr) return absl::InvalidArgumentError("requested cursor: no input cursor");
  const uint64_t capacity = input->capacity();
  if (requested.offset > capacity) {
    return absl::OutOfRangeError(absl::StrCat("requested cursor: the window begins at ",
                                              requested.offset, ", past the capacity ", capacity));
  }
  if (input->covered() != 0) {
    if (absl::Status status = input->Seek(0); !status.ok()) return status;
  }
  auto recording = std::make_unique<RecordingCursor>(std::move(input));
  RecordingCursor& recorder = *recording;
  absl::StatusOr<std::unique_ptr<ExtentCursor>> shaped = std::move(recording);
  if (requested.chunk != 1) shaped = AlignOutward(*std::move(shaped), requested.chunk);
  if (shaped.ok() && requested.bridge_gap > 0) {
    shaped = Coalesce(*std::move(shaped), requested.bridge_gap);
  }
  if (shaped.ok() && (requested.offset > 0 || requested.length.has_value())) {
    const uint64_t rest = capacity - requested.offset;
    const uint64_t length = std::min(requested.length.value_or(rest), rest);
    shaped = Clip(*std::move(shaped), requested.offset, requested.offset + length);
  }
  if (!shaped.ok()) return shaped.status();
  return std::make_unique<RequestedCursorImpl>(*std::move(shaped), recorder);
}

}  // namespace cbt

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/transform.h"

namespace cbt {
namespace {

// Forwards extents and counts the bytes of each group that will become one extent of the result:
// extents that, rounded outward, are at most a gap apart. Memory grows with the pending results,
// not with the extents.
class RecordingCursor final : public ExtentCursor {
 public:
  RecordingCursor(std::unique_ptr<ExtentCursor> input, const Requested& requested,
                  uint64_t window_end)
      : ExtentCursor(input->geometry()),
        input_(std::move(input)),
        chunk_(requested.chunk),
        gap_(requested.bridge_gap),
        window_begin_(requested.offset),
        window_end_(window_end) {}

  // Nothing below `floor` is returned from now on, though transforms may read extents below it.
  void SetFloor(uint64_t floor) noexcept { floor_ = floor; }

  // Removes the groups that begin below `end` and returns their bytes in the window. `end` must
  // ascend from call to call.
  uint64_t Take(uint64_t end) noexcept {
    uint64_t bytes = 0;
    for (; !groups_.empty() && groups_.front().begin < end; groups_.pop_front()) {
      bytes += groups_.front().bytes;
    }
    return bytes;
  }

 private:
  struct Group {
    uint64_t begin;
    uint64_t end;
    uint64_t bytes;
  };

  absl::Status DoSeek(uint64_t offset) override {
    groups_.clear();
    return input_->Seek(offset);
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    absl::StatusOr<Step> step = input_->Next(batch);
    if (!step.ok()) return step.status();
    for (size_t i = 0; i < batch.size(); ++i) {
      const Extent extent = {batch[i].offset,
                             std::min(batch[i].length, capacity() - batch[i].offset)};
      batch.mutable_lengths()[i] = extent.length;
      Record(extent);
    }
    return input_->covered();
  }

  void Record(Extent extent) {
    const uint64_t from = std::max({extent.offset, window_begin_, floor_});
    const uint64_t to = std::min(extent.end(), window_end_);
    const uint64_t bytes = from < to ? to - from : 0;
    const uint64_t begin = AlignDown(extent.offset, chunk_);
    const uint64_t end = AlignUp(extent.end(), chunk_);
    if (!groups_.empty() && (begin <= groups_.back().end || begin - groups_.back().end <= gap_)) {
      groups_.back().end = end;
      groups_.back().bytes += bytes;
    } else {
      groups_.push_back({begin, end, bytes});
    }
  }

  const std::unique_ptr<ExtentCursor> input_;
  const uint64_t chunk_;
  const uint64_t gap_;
  const uint64_t window_begin_;
  const uint64_t window_end_;
  uint64_t floor_ = 0;
  std::deque<Group> groups_;
};

class RequestedCursorImpl final : public RequestedCursor {
 public:
  RequestedCursorImpl(std::unique_ptr<ExtentCursor> shaped, RecordingCursor& recording)
      : RequestedCursor(shaped->geometry()), shaped_(std::move(shaped)), recording_(recording) {}

  uint64_t bytes() const noexcept override { return bytes_; }
  uint64_t added_bytes() const noexcept override { return bytes_ - known_; }

 private:
  absl::Status DoSeek(uint64_t offset) override {
    bytes_ = known_ = 0;
    recording_.SetFloor(offset);
    return shaped_->Seek(offset);
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    absl::StatusOr<Step> step = shaped_->Next(batch);
    if (!step.ok()) return step.status();
    for (size_t i = 0; i < batch.size(); ++i) {
      bytes_ += batch[i].length;
      known_ += recording_.Take(batch[i].end());
    }
    return shaped_->covered();
  }

  const std::unique_ptr<ExtentCursor> shaped_;
  RecordingCursor& recording_;  // the innermost input of shaped_
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
  const uint64_t rest = capacity - requested.offset;
  const uint64_t window_end = requested.offset + std::min(requested.length.value_or(rest), rest);
  auto recording = std::make_unique<RecordingCursor>(std::move(input), requested, window_end);
  RecordingCursor& recorder = *recording;
  absl::StatusOr<std::unique_ptr<ExtentCursor>> shaped = std::move(recording);
  // AlignOutward() rejects an invalid chunk.
  if (requested.chunk != 1) shaped = AlignOutward(*std::move(shaped), requested.chunk);
  if (shaped.ok() && requested.bridge_gap > 0) {
    shaped = Coalesce(*std::move(shaped), requested.bridge_gap);
  }
  if (shaped.ok() && (requested.offset > 0 || requested.length.has_value())) {
    shaped = Clip(*std::move(shaped), requested.offset, window_end);
  }
  if (!shaped.ok()) {
    return absl::Status(shaped.status().code(),
                        absl::StrCat("requested cursor: ", shaped.status().message()));
  }
  return std::make_unique<RequestedCursorImpl>(*std::move(shaped), recorder);
}

}  // namespace cbt

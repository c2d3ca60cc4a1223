// Transforms that unite extents: Coalesce and AlignOutward.
#include <algorithm>
#include <utility>

#include "cbt/transform.h"
#include "core/transform.h"

namespace cbt {
namespace {

// Rounds extents outward to multiples of `alignment` and unites those with at most `max_gap` bytes
// between them.
class MergeCursor final : public TransformCursor {
 public:
  MergeCursor(std::unique_ptr<ExtentCursor> input, uint64_t granularity, uint64_t alignment,
              uint64_t max_gap) noexcept
      : TransformCursor(std::move(input), granularity), alignment_(alignment), max_gap_(max_gap) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    floor_ = offset;
    pending_ = {};
    // An extent that ends up to max_gap before the position may be bridged with the next one, and
    // the part of the bridge behind the position belongs to the answer.
    return SeekInput(offset - std::min(offset, max_gap_));
  }

  void Consume(ExtentBatch& batch) override {
    while (HasInput()) {
      const Extent input = Peek();
      const uint64_t begin = AlignDown(input.offset, alignment_);
      const uint64_t end = std::min(AlignUp(input.end(), alignment_), capacity());
      if (pending_.length == 0) {
        pending_ = {begin, end - begin};
      } else if (begin <= pending_.end() || begin - pending_.end() <= max_gap_) {
        pending_.length = std::max(end, pending_.end()) - pending_.offset;
      } else {
        if (batch.full()) return;
        Emit(batch);
        pending_ = {begin, end - begin};
      }
      Advance();
    }
    // What is still to come may be too far away to be united with: hand it on now.
    const uint64_t next = AlignDown(InputCovered(), alignment_);
    if (pending_.length != 0 && next > pending_.end() && next - pending_.end() > max_gap_ &&
        !batch.full()) {
      Emit(batch);
    }
  }

  bool Flush(ExtentBatch& batch) override {
    if (pending_.length != 0) Emit(batch);
    return true;
  }

  uint64_t Coverage() const override {
    const uint64_t next =
        pending_.length != 0 ? pending_.offset : AlignDown(InputCovered(), alignment_);
    return std::max(next, floor_);
  }

  void Emit(ExtentBatch& batch) noexcept {
    if (pending_.end() > floor_) {
      const uint64_t begin = std::max(pending_.offset, floor_);
      batch.push_back({begin, pending_.end() - begin});
    }
    pending_ = {};
  }

  const uint64_t alignment_;
  const uint64_t max_gap_;
  uint64_t floor_ = 0;  // the position of the last Seek(): nothing before it is handed on
  Extent pending_;      // the extent that the next one may still be united with; empty: none
};

}  // namespace

absl::StatusOr<std::unique_ptr<ExtentCursor>> Coalesce(std::unique_ptr<ExtentCursor> input,
                                                       uint64_t max_gap) {
  if (absl::Status status = PrepareInput(input, "coalesce"); !status.ok()) return status;
  const uint64_t granularity = input->granularity();
  return std::make_unique<MergeCursor>(std::move(input), granularity, 1, max_gap);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> AlignOutward(std::unique_ptr<ExtentCursor> input,
                                                           uint64_t granularity) {
  if (absl::Status status = PrepareInput(input, "align"); !status.ok()) return status;
  if (absl::Status status = CheckGeometry(input->capacity(), granularity); !status.ok()) {
    return status;
  }
  return std::make_unique<MergeCursor>(std::move(input), granularity, granularity, 0);
}

}  // namespace cbt

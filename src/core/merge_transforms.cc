// Transforms that merge the extents of one cursor: Coalesce and AlignOutward.
#include <algorithm>
#include <utility>

#include "cbt/transform.h"
#include "core/transform.h"
#include "core/uniter.h"
#include "simd/kernels.h"

namespace cbt {
namespace {

// Rounds extents outward to multiples of `alignment` and merges those with at most `max_gap` bytes
// between them.
class MergeCursor final : public TransformCursor {
 public:
  // `in_pieces`: returns whole blocks before the end of their extent is known. Requires: max_gap 0.
  MergeCursor(std::unique_ptr<ExtentCursor> input, uint64_t granularity, uint64_t alignment,
              uint64_t max_gap, bool in_pieces = false)
      : TransformCursor(std::move(input), granularity),
        alignment_(alignment),
        max_gap_(max_gap),
        in_pieces_(in_pieces),
        uniter_(max_gap) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    uniter_.Reset(offset);
    // An extent that ends up to max_gap below the position may be bridged to the next one; the part
    // of the bridge above the position belongs to the answer.
    return SeekInput(offset - std::min(offset, max_gap_));
  }

  void Consume(ExtentBatch& batch) override {
    if (in_pieces_ && !uniter_.waiting() && IsAligned()) {
      // Nothing to round or merge: most sources report whole blocks.
      CopyInput(batch, std::min(InputCount(), batch.room()));
      return;
    }
    if (!uniter_.waiting()) {
      const size_t count = InputCount();
      if (IsPowerOfTwo(alignment_) && batch.room() >= count) {
        const uint64_t* const offsets = InputOffsets();
        const uint64_t* const lengths = InputLengths();
        Advance(count);
        uniter_.Join(offsets, lengths, count, alignment_, capacity(), Horizon(), batch);
        if (in_pieces_) uniter_.ReleaseTo(batch);
        return;
      }
      uniter_.Reserve(count);
      Align(count);
      Advance(count);
      uniter_.Unite(count, Horizon());
      if (in_pieces_) uniter_.Release();
    }
    uniter_.MoveTo(batch);
  }

  bool Flush(ExtentBatch& batch) override {
    if (!uniter_.waiting()) uniter_.Finish();
    uniter_.MoveTo(batch);
    return !uniter_.waiting();
  }

  uint64_t Coverage() const override { return uniter_.Pending(Horizon()); }

  // No later extent of the input, rounded outward, begins below this.
  uint64_t Horizon() const noexcept {
    const uint64_t covered = InputCovered();
    // The last block may be partial. If it fills the batch, no Flush() follows that would release
    // it.
    return covered == capacity() ? covered : AlignDown(covered, alignment_);
  }

  // True if all buffered extents begin and end at multiples of the alignment, above the position.
  bool IsAligned() const noexcept {
    const size_t count = InputCount();
    if (count == 0 || !IsPowerOfTwo(alignment_) || InputOffsets()[0] < uniter_.floor())
      return false;
    uint64_t bits = 0;
    for (size_t i = 0; i < count; ++i) bits |= InputOffsets()[i] | InputLengths()[i];
    return (bits & (alignment_ - 1)) == 0;
  }

  // Passes the next `count` extents to the uniter, rounded outward and cut at the capacity.
  void Align(size_t count) noexcept {
    const uint64_t* const offsets = InputOffsets();
    const uint64_t* const lengths = InputLengths();
    uint64_t* const starts = uniter_.starts();
    uint64_t* const ends = uniter_.ends();
    const uint64_t limit = capacity();
    if (IsPowerOfTwo(alignment_)) {
      simd::SortedExtents().bounds(offsets, lengths, count, alignment_, starts, ends);
    } else {
      for (size_t i = 0; i < count; ++i) {
        starts[i] = AlignDown(offsets[i], alignment_);
        // A block that extends past the capacity may end where rounding up would wrap.
        ends[i] = AlignUp(std::min(offsets[i] + lengths[i], limit), alignment_);
      }
    }
    for (size_t i = count; i-- > 0 && ends[i] > limit;) ends[i] = limit;
  }

  const uint64_t alignment_;
  const uint64_t max_gap_;
  const bool in_pieces_;
  Uniter uniter_;
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
  if (absl::Status status =
          CheckGeometry({.capacity = input->capacity(), .granularity = granularity});
      !status.ok()) {
    return status;
  }
  return std::make_unique<MergeCursor>(std::move(input), granularity, granularity, 0);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> AlignInPieces(std::unique_ptr<ExtentCursor> input,
                                                            uint64_t granularity) {
  if (absl::Status status = PrepareInput(input, "blocks"); !status.ok()) return status;
  if (absl::Status status =
          CheckGeometry({.capacity = input->capacity(), .granularity = granularity});
      !status.ok()) {
    return status;
  }
  input->AllowPieces();
  return std::make_unique<MergeCursor>(std::move(input), granularity, granularity, 0, true);
}

}  // namespace cbt

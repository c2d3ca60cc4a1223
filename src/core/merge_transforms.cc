// Transforms that unite the extents of one cursor: Coalesce and AlignOutward.
#include <algorithm>
#include <utility>

#include "cbt/transform.h"
#include "core/transform.h"
#include "core/uniter.h"
#include "simd/kernels.h"

namespace cbt {
namespace {

// Rounds extents outward to multiples of `alignment` and unites those with at most `max_gap` bytes
// between them.
class MergeCursor final : public TransformCursor {
 public:
  // `in_pieces`: what is whole already is handed on before its end is known. For no gap only.
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
    // An extent that ends up to max_gap before the position may be bridged with the next one, and
    // the part of the bridge behind the position belongs to the answer.
    return SeekInput(offset - std::min(offset, max_gap_));
  }

  void Consume(ExtentBatch& batch) override {
    if (in_pieces_ && !uniter_.waiting() && IsAligned()) {
      // Whole blocks already, and nothing needs to be united: most sources know blocks.
      CopyInput(batch, std::min(InputCount(), batch.room()));
      return;
    }
    if (!uniter_.waiting()) {
      const size_t count = InputCount();
      uniter_.Reserve(count);
      Align(count);
      Advance(count);
      uniter_.Unite(count, Horizon());
      if (in_pieces_) uniter_.Release();
    }
    uniter_.HandOn(batch);
  }

  bool Flush(ExtentBatch& batch) override {
    if (!uniter_.waiting()) uniter_.Finish();
    uniter_.HandOn(batch);
    return !uniter_.waiting();
  }

  uint64_t Coverage() const override { return uniter_.Pending(Horizon()); }

  // Nothing that comes from the input later begins below, rounded outward.
  uint64_t Horizon() const noexcept {
    const uint64_t covered = InputCovered();
    // The last block may be a partial one. When it fills the batch there is no Flush() that would
    // tell that it was the last.
    return covered == capacity() ? covered : AlignDown(covered, alignment_);
  }

  // True when everything at hand begins and ends at multiples of the alignment, behind the
  // position.
  bool IsAligned() const noexcept {
    const size_t count = InputCount();
    if (count == 0 || !IsPowerOfTwo(alignment_) || InputOffsets()[0] < uniter_.floor())
      return false;
    uint64_t bits = 0;
    for (size_t i = 0; i < count; ++i) bits |= InputOffsets()[i] | InputLengths()[i];
    return (bits & (alignment_ - 1)) == 0;
  }

  // The next `count` extents, rounded outward and cut at the capacity, to the uniter.
  void Align(size_t count) noexcept {
    const uint64_t* const offsets = InputOffsets();
    const uint64_t* const lengths = InputLengths();
    uint64_t* const starts = uniter_.starts();
    uint64_t* const ends = uniter_.ends();
    const uint64_t limit = capacity();
    if (IsPowerOfTwo(alignment_)) {
      simd::SortedExtentsInUse().bounds(offsets, lengths, count, alignment_, starts, ends);
    } else {
      for (size_t i = 0; i < count; ++i) {
        starts[i] = AlignDown(offsets[i], alignment_);
        // A block that reaches past the capacity may reach past where rounding up is safe.
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
  if (absl::Status status = CheckGeometry(input->capacity(), granularity); !status.ok()) {
    return status;
  }
  return std::make_unique<MergeCursor>(std::move(input), granularity, granularity, 0);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> AlignInPieces(std::unique_ptr<ExtentCursor> input,
                                                            uint64_t granularity) {
  if (absl::Status status = PrepareInput(input, "blocks"); !status.ok()) return status;
  if (absl::Status status = CheckGeometry(input->capacity(), granularity); !status.ok()) {
    return status;
  }
  input->AllowPieces();
  return std::make_unique<MergeCursor>(std::move(input), granularity, granularity, 0, true);
}

}  // namespace cbt

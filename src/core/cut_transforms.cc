// Transforms that cut extents: Split, ToBlocks and Clip.
#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/transform.h"
#include "core/transform.h"
#include "simd/kernels.h"

namespace cbt {
namespace {

// Pieces of at most `length` bytes. With `whole_blocks` every piece has exactly that length, even
// the last one if the capacity is not a multiple of it.
class PieceCursor final : public TransformCursor {
 public:
  PieceCursor(std::unique_ptr<ExtentCursor> input, uint64_t granularity, uint64_t length,
              bool whole_blocks)
      : TransformCursor(std::move(input), granularity),
        length_(length),
        whole_blocks_(whole_blocks) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    rest_ = {};
    return SeekInput(offset);
  }

  void Consume(ExtentBatch& batch) override {
    for (;;) {
      if (rest_.length != 0) Cut(batch);
      if (rest_.length == 0) whole_blocks_ ? CutShort(batch) : CopyShort(batch);
      if (rest_.length != 0 || !HasInput() || batch.full()) return;
      rest_ = Peek();
      Advance();
    }
  }

  bool Flush(ExtentBatch&) override { return rest_.length == 0; }

  uint64_t Coverage() const override { return rest_.length != 0 ? rest_.offset : InputCovered(); }

  // Moves extents of at most two pieces, up to the first longer one.
  void CopyShort(ExtentBatch& batch) noexcept {
    static_assert(ExtentBatch::kSlack >= simd::kSplitSlack);
    const simd::SplitScan scan =
        simd::SplitExtents().split(InputOffsets(), InputLengths(), InputCount(), length_,
                                   capacity(), batch.mutable_offsets() + batch.size(),
                                   batch.mutable_lengths() + batch.size(), batch.room());
    batch.set_size(batch.size() + scan.pieces);
    Advance(scan.extents);
  }

  // Moves extents of at most eight blocks, up to the first longer one. Always writes four blocks,
  // or eight, so that hardly a branch depends on their number.
  void CutShort(ExtentBatch& batch) noexcept {
    if (!IsPowerOfTwo(length_)) return;
    const auto shift = static_cast<unsigned>(std::countr_zero(length_));
    const size_t count = InputCount();
    const uint64_t* const from = InputOffsets();
    const uint64_t* const sizes = InputLengths();
    uint64_t* const offsets = batch.mutable_offsets();
    const size_t before = batch.size();
    size_t out = before;
    size_t i = 0;
    static_assert(ExtentBatch::kSlack >= 8);
    for (; i < count; ++i) {
      const uint64_t offset = from[i];
      // The input is aligned, but its last extent may be cut at the capacity.
      const uint64_t blocks = (sizes[i] + (length_ - 1)) >> shift;
      if (blocks > 8 || blocks > batch.capacity() - out) break;
      for (size_t k = 0; k < 4; ++k) offsets[out + k] = offset + (uint64_t{k} << shift);
      if (blocks > 4) {
        for (size_t k = 4; k < 8; ++k) offsets[out + k] = offset + (uint64_t{k} << shift);
      }
      out += blocks;
    }
    std::fill(batch.mutable_lengths() + before, batch.mutable_lengths() + out, length_);
    batch.set_size(out);
    Advance(i);
  }

  // Moves pieces from rest_ to `batch` until either is exhausted.
  void Cut(ExtentBatch& batch) noexcept {
    const uint64_t pieces = BlockCount(rest_.length, length_);
    const size_t count = static_cast<size_t>(std::min<uint64_t>(pieces, batch.room()));
    if (count == 0) return;
    uint64_t* const offsets = batch.mutable_offsets() + batch.size();
    uint64_t* const lengths = batch.mutable_lengths() + batch.size();
    for (size_t i = 0; i < count; ++i) {
      offsets[i] = rest_.offset + i * length_;
      lengths[i] = length_;
    }
    batch.set_size(batch.size() + count);
    if (count < pieces) {
      rest_.offset += count * length_;
      rest_.length -= count * length_;
      return;
    }
    if (!whole_blocks_) lengths[count - 1] = rest_.end() - offsets[count - 1];
    rest_ = {};
  }

  const uint64_t length_;
  const bool whole_blocks_;
  Extent rest_;  // the rest of an extent whose first pieces have been returned
};

// The blocks of an input that makes them itself, of another size than its granularity.
class BlocksCursor final : public ExtentCursor {
 public:
  BlocksCursor(std::unique_ptr<ExtentCursor> input, uint64_t block_size)
      : ExtentCursor({.capacity = input->capacity(), .granularity = block_size}),
        input_(std::move(input)) {}

 private:
  absl::Status DoSeek(uint64_t offset) override { return input_->Seek(offset); }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    const absl::StatusOr<Step> step = input_->Next(batch);
    if (!step.ok()) return step.status();
    return input_->covered();
  }

  const std::unique_ptr<ExtentCursor> input_;
};

// The part of the input inside [begin, end), cut in the batch that it was written to.
class ClipCursor final : public ExtentCursor {
 public:
  ClipCursor(std::unique_ptr<ExtentCursor> input, uint64_t begin, uint64_t end)
      : ExtentCursor(input->geometry()), input_(std::move(input)), begin_(begin), end_(end) {}

  // Called once by the factory, so that nothing below the window is ever read.
  absl::Status Start() { return input_->Seek(begin_); }

 private:
  absl::Status DoSeek(uint64_t offset) override { return input_->Seek(std::max(offset, begin_)); }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    const absl::StatusOr<Step> step = input_->Next(batch);
    if (!step.ok()) return step.status();
    Cut(batch);
    // There is nothing to report past the window, whatever the input has there.
    const uint64_t covered = input_->covered();
    return covered >= end_ ? capacity() : std::max(covered, begin_);
  }

  void Cut(ExtentBatch& batch) const noexcept {
    uint64_t* const offsets = batch.mutable_offsets();
    uint64_t* const lengths = batch.mutable_lengths();
    size_t count = batch.size();
    while (count > 0 && offsets[count - 1] >= end_) --count;
    if (count > 0) lengths[count - 1] = std::min(lengths[count - 1], end_ - offsets[count - 1]);
    // Inputs round positions down: the first extents may begin, or lie, below the window.
    size_t below = 0;
    while (below < count && offsets[below] + lengths[below] <= begin_) ++below;
    if (below != 0) {
      std::copy(offsets + below, offsets + count, offsets);
      std::copy(lengths + below, lengths + count, lengths);
      count -= below;
    }
    if (count > 0 && offsets[0] < begin_) {
      lengths[0] -= begin_ - offsets[0];
      offsets[0] = begin_;
    }
    batch.set_size(count);
  }

  const std::unique_ptr<ExtentCursor> input_;
  const uint64_t begin_;
  const uint64_t end_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ExtentCursor>> Split(std::unique_ptr<ExtentCursor> input,
                                                    uint64_t max_length) {
  if (absl::Status status = PrepareInput(input, "split"); !status.ok()) return status;
  const uint64_t granularity = input->granularity();
  if (max_length == 0 || max_length % granularity != 0 || max_length > kMaxCapacity) {
    return absl::InvalidArgumentError(
        absl::StrCat("split: maximum length ", max_length,
                     " is not a positive multiple of the granularity ", granularity));
  }
  return std::make_unique<PieceCursor>(std::move(input), granularity, max_length, false);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> ToBlocks(std::unique_ptr<ExtentCursor> input,
                                                       uint64_t block_size) {
  if (absl::Status status = PrepareInput(input, "blocks"); !status.ok()) return status;
  const uint64_t capacity = input->capacity();
  if (absl::Status status = CheckGeometry({.capacity = capacity, .granularity = block_size});
      !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("blocks: ", status.message()));
  }
  if (AlignUp(capacity, block_size) > kMaxCapacity) {
    return absl::InvalidArgumentError(absl::StrCat("blocks: the last block of ", block_size,
                                                   " bytes at capacity ", capacity,
                                                   " would end past ", kMaxCapacity));
  }
  if (input->ReturnBlocks(block_size)) {
    if (input->granularity() == block_size) return input;
    return std::make_unique<BlocksCursor>(std::move(input), block_size);
  }
  absl::StatusOr<std::unique_ptr<ExtentCursor>> aligned =
      AlignInPieces(std::move(input), block_size);
  if (!aligned.ok()) return aligned.status();
  return std::make_unique<PieceCursor>(*std::move(aligned), block_size, block_size, true);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> Clip(std::unique_ptr<ExtentCursor> input,
                                                   uint64_t begin, uint64_t end) {
  if (absl::Status status = PrepareInput(input, "clip"); !status.ok()) return status;
  if (begin > end || end > input->capacity()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "clip: [", begin, ", ", end, ") is not a range within the capacity ", input->capacity()));
  }
  auto cursor = std::make_unique<ClipCursor>(std::move(input), begin, end);
  if (absl::Status status = cursor->Start(); !status.ok()) return status;
  return cursor;
}

}  // namespace cbt

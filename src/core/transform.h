// What all transforms share: an input cursor, one batch of its extents, and a place in it.
#ifndef CBT_CORE_TRANSFORM_H_
#define CBT_CORE_TRANSFORM_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"

namespace cbt {

// Base of the transforms. A subclass gives Consume() and Coverage(); DoNext() pulls at most one
// batch of the input a call, so that its work is bounded by the input's.
class TransformCursor : public ExtentCursor {
 protected:
  TransformCursor(std::unique_ptr<ExtentCursor> input, uint64_t granularity);

  // Moves the extents at hand from the input to `batch` until one of the two is at its end.
  virtual void Consume(ExtentBatch& batch) = 0;

  // Appends what was held back for later, now that the input is complete; true when nothing is
  // left. Called with room for at least one extent.
  virtual bool Flush(ExtentBatch& batch) = 0;

  // New coverage after Consume(), while the input is not both complete and consumed.
  virtual uint64_t Coverage() const = 0;

  // Seeks the input and forgets what was at hand.
  absl::Status SeekInput(uint64_t offset);

  bool HasInput() const noexcept { return next_ < batch_.size(); }
  // The next extent at hand, cut at the capacity (a fixed-block input may reach past it).
  Extent Peek() const noexcept;
  void Advance(size_t count = 1) noexcept { next_ += count; }
  // All extents at hand, as they came: a fixed-block input's last one may reach past the capacity.
  size_t InputCount() const noexcept { return batch_.size() - next_; }
  const uint64_t* InputOffsets() const noexcept { return batch_.offsets().data() + next_; }
  const uint64_t* InputLengths() const noexcept { return batch_.lengths().data() + next_; }
  // Moves the next `count` extents at hand to `batch`, which has room for them, each cut at the
  // capacity.
  void CopyInput(ExtentBatch& batch, size_t count) noexcept;
  // Nothing at hand or to come starts below this offset.
  uint64_t InputCovered() const noexcept;

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) final;

 private:
  const std::unique_ptr<ExtentCursor> input_;
  ExtentBatch batch_;
  size_t next_ = 0;
  bool complete_ = false;
};

// As AlignOutward(), but hands on what is whole already; extents may touch.
absl::StatusOr<std::unique_ptr<ExtentCursor>> AlignInPieces(std::unique_ptr<ExtentCursor> input,
                                                            uint64_t granularity);

// Brings an input that has been read from already back to its beginning, so that a transform over
// it misses nothing. INVALID_ARGUMENT that begins with `transform` when there is no input.
absl::Status PrepareInput(const std::unique_ptr<ExtentCursor>& input, const char* transform);

}  // namespace cbt

#endif  // CBT_CORE_TRANSFORM_H_

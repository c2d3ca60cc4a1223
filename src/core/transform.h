// The base of all transforms: an input cursor, a batch of its extents, and a position in it.
#ifndef CBT_CORE_TRANSFORM_H_
#define CBT_CORE_TRANSFORM_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"

namespace cbt {

// Base of the transforms. A subclass implements Consume(), Flush() and Coverage(). DoNext() pulls
// at most one batch of the input per call, so that its work is bounded by the input's.
class TransformCursor : public ExtentCursor {
 protected:
  TransformCursor(std::unique_ptr<ExtentCursor> input, uint64_t granularity);

  // Moves buffered input extents to `batch` until either is exhausted.
  virtual void Consume(ExtentBatch& batch) = 0;

  // Appends extents that were held back, after the input has completed; true if none are left.
  // Called with room for at least one extent.
  virtual bool Flush(ExtentBatch& batch) = 0;

  // The new coverage after Consume(), unless the input is complete and consumed.
  virtual uint64_t Coverage() const = 0;

  // Seeks the input and drops buffered extents.
  absl::Status SeekInput(uint64_t offset);

  bool HasInput() const noexcept { return next_ < batch_.size(); }
  // The next buffered extent, cut at the capacity (a fixed-block input may extend past it).
  Extent Peek() const noexcept;
  void Advance(size_t count = 1) noexcept { next_ += count; }
  // All buffered extents, unchanged: a fixed-block input's last one may extend past the capacity.
  size_t InputCount() const noexcept { return batch_.size() - next_; }
  const uint64_t* InputOffsets() const noexcept { return batch_.offsets().data() + next_; }
  const uint64_t* InputLengths() const noexcept { return batch_.lengths().data() + next_; }
  // Moves the next `count` buffered extents to `batch`, which has room for them, each cut at the
  // capacity.
  void CopyInput(ExtentBatch& batch, size_t count) noexcept;
  // No buffered or later extent starts below this offset.
  uint64_t InputCovered() const noexcept;

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) final;

 private:
  const std::unique_ptr<ExtentCursor> input_;
  ExtentBatch batch_;
  size_t next_ = 0;
  bool complete_ = false;
};

// As AlignOutward(), but returns whole blocks as soon as they are known; extents may touch.
absl::StatusOr<std::unique_ptr<ExtentCursor>> AlignInPieces(std::unique_ptr<ExtentCursor> input,
                                                            uint64_t granularity);

// Rewinds an input that has been read from, so that a transform over it misses nothing.
// INVALID_ARGUMENT, with a message that begins with `transform`, if there is no input.
absl::Status PrepareInput(const std::unique_ptr<ExtentCursor>& input, const char* transform);

}  // namespace cbt

#endif  // CBT_CORE_TRANSFORM_H_

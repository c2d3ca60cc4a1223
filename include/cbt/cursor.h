// The one interface that everything in libcbt produces, transforms and consumes: a position in a
// volume's changed (or allocated) extents.
//
// snippet: tests/consumer/snippets/core.cc#cursor
//   cbt::ExtentBatch batch;
//   for (;;) {
//     absl::StatusOr<cbt::Step> step = cursor.Next(batch);
//     if (!step.ok()) return step.status();
//     for (size_t i = 0; i < batch.size(); ++i) Use(batch[i]);
//     if (*step == cbt::Step::kComplete) break;
//   }
//
// or ForEachBatch() below, which is harder to get wrong.
//
// Coverage. A cursor reports how much of the volume it has covered: every extent below covered()
// has been returned. A stream is complete when coverage reaches the capacity, and for no other
// reason: an implementation has no way to signal "end", it can only report coverage or fail. A
// source that stops short can therefore not be mistaken for one that found nothing more.
#ifndef CBT_CURSOR_H_
#define CBT_CURSOR_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/batch.h"
#include "cbt/extent.h"

namespace cbt {

// The state of the stream after Next().
enum class Step {
  kMore,      // call again; an empty batch means that a region without extents was passed
  kComplete,  // every extent up to the capacity has been returned
};

// A position in a volume's extents, which are read in batches.
//
// Extents ascend and never overlap. They start below capacity() and end at or below it, with one
// exception: the last block of a fixed-block cursor (ToBlocks) keeps its size and may extend past
// the capacity. A cursor belongs to one thread at a time; different cursors over the same data may
// run in parallel. After an error, every call of Next() repeats it until Seek() succeeds. The same
// holds after an exception (std::bad_alloc).
class ExtentCursor {
 public:
  virtual ~ExtentCursor() = default;
  ExtentCursor(const ExtentCursor&) = delete;
  ExtentCursor& operator=(const ExtentCursor&) = delete;

  // Size of the volume in bytes, at most kMaxCapacity. Constant.
  uint64_t capacity() const noexcept { return geometry_.capacity; }

  // The unit in bytes in which this cursor knows about changes. Seek() rounds down to a multiple of
  // it. Constant, 1 .. kMaxGranularity.
  uint64_t granularity() const noexcept { return geometry_.granularity; }

  // Both of the above.
  const VolumeGeometry& geometry() const noexcept { return geometry_; }

  // Every extent below this offset (bytes) has been returned. Grows with Next(), also over regions
  // without extents. Only Seek() moves it back.
  uint64_t covered() const noexcept { return covered_; }

  // Moves to `offset` (bytes), rounded down to the granularity. What follows is the full answer cut
  // at that point, as if the cursor had run from 0. A new cursor starts at 0.
  // Errors: OUT_OF_RANGE when offset > capacity(); the source's error when it can't seek there.
  // Cost:   O(log n) in the number of extents or better; reads nothing below the offset.
  [[nodiscard]] absl::Status Seek(uint64_t offset);

  // Replaces the contents of `batch` with the next extents, at most batch.capacity() of them.
  // Returns after a bounded amount of work even if it found none, so that callers can check for
  // cancellation between calls. After kComplete, every further call returns kComplete and an empty
  // batch.
  // Errors: DATA_LOSS when the underlying data proves inconsistent, UNAVAILABLE when it can't be
  //         read now, ABORTED when it changed during the read, RESOURCE_EXHAUSTED when a resource
  //         runs out, INTERNAL when an implementation breaks the rules of this class or the last
  //         call threw an exception; any other error that the source documents. The batch is empty
  //         on error.
  [[nodiscard]] absl::StatusOr<Step> Next(ExtentBatch& batch);

  // Allows the cursor to return one extent as several adjacent pieces, instead of holding it back
  // until its end is known. For consumers that treat both alike and should not wait, such as
  // ToBlocks(). Call before the first Next(). A cursor that can't split extents ignores it.
  void AllowPieces() {
    pieces_allowed_ = true;
    DoAllowPieces();
  }

  // Asks the cursor to return blocks instead of extents, as ToBlocks() makes them: each begins at a
  // multiple of `block_size` (bytes), has that size, and is returned once; the last one may extend
  // past the capacity. ToBlocks() asks; sources that know blocks need not make extents of them
  // first. Call before the first Next(), with a size that ToBlocks() takes. From then on, Seek()
  // takes multiples of the block size.
  // Returns: true if it returns blocks from now on; false if nothing has changed.
  [[nodiscard]] bool ReturnBlocks(uint64_t block_size) { return DoReturnBlocks(block_size); }

 protected:
  // Requires: a valid geometry; factories check it with CheckGeometry().
  explicit ExtentCursor(const VolumeGeometry& geometry) noexcept : geometry_(geometry) {}

  // Moves to `offset`, a multiple of the granularity and below the capacity.
  virtual absl::Status DoSeek(uint64_t offset) = 0;

  // Appends extents to `batch` (empty, capacity() > 0) and returns the new coverage (bytes): the
  // offset below which nothing remains to be reported. Next() fails if an extent starts below the
  // old coverage or ends above the new one, or if the coverage went backwards. Called only while
  // covered() < capacity().
  virtual absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) = 0;

  bool pieces_allowed() const noexcept { return pieces_allowed_; }

  // For cursors that return their input's extents unchanged: forwards the permission to the input.
  virtual void DoAllowPieces() {}

  // For cursors that can return blocks, and for those that return their input's extents unchanged.
  virtual bool DoReturnBlocks(uint64_t /*block_size*/) { return false; }

 private:
  const VolumeGeometry geometry_;
  uint64_t covered_ = 0;
  bool pieces_allowed_ = false;
  bool interrupted_ = false;  // the source was called and has not returned
  absl::Status failure_;
};

// OK if a cursor or a map can have this geometry, otherwise INVALID_ARGUMENT.
absl::Status CheckGeometry(const VolumeGeometry& geometry);

// Runs `cursor` to completion and passes every batch to `use`, including empty ones
// (cursor.covered() still shows progress). Stops at the first error of either.
// Returns: OK only if the cursor completed and `use` accepted every batch.
absl::Status ForEachBatch(ExtentCursor& cursor,
                          const std::function<absl::Status(const ExtentBatch&)>& use,
                          size_t batch_capacity = ExtentBatch::kDefaultCapacity);

}  // namespace cbt

#endif  // CBT_CURSOR_H_

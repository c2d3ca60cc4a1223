// The one interface that everything in libcbt produces, transforms and consumes: a position in a
// volume's changed (or allocated) extents.
//
//   cbt::ExtentBatch batch;
//   for (;;) {
//     absl::StatusOr<cbt::Step> step = cursor.Next(batch);
//     if (!step.ok()) return step.status();
//     for (size_t i = 0; i < batch.size(); ++i) Use(batch[i]);
//     if (*step == cbt::Step::kComplete) break;
//   }
//
// or, the same with less to forget, ForEachBatch() below.
//
// Coverage. A cursor says how far it has covered the volume: everything there is to report below
// covered() has been handed on. A stream is complete when coverage has reached the capacity and
// for no other reason: an implementation has no way to say "end", it can only report coverage or
// fail. So a source that stops short can't be mistaken for one that found nothing more.
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

// What Next() says about the stream, besides the extents it put into the batch.
enum class Step {
  kMore,      // call again; the batch may be empty, then a quiet region was passed
  kComplete,  // everything up to the capacity has been handed on
};

// A position in a volume's extents, handed on in batches.
//
// Extents ascend and never overlap. They start below capacity() and end at or below it, with one
// exception: the last block of a fixed-block cursor (ToBlocks) keeps its size and may reach past.
// A cursor belongs to one thread at a time; different cursors over the same data may run in
// parallel. A cursor that failed repeats its error until Seek() succeeds; one that threw an
// exception (std::bad_alloc) fails from then on in the same way.
class ExtentCursor {
 public:
  virtual ~ExtentCursor() = default;
  ExtentCursor(const ExtentCursor&) = delete;
  ExtentCursor& operator=(const ExtentCursor&) = delete;

  // Size of the volume in bytes, at most kMaxCapacity. Constant.
  uint64_t capacity() const noexcept { return capacity_; }

  // The unit in bytes in which this cursor knows about changes: a position is rounded down to a
  // multiple of it by Seek(). Constant, 1 .. kMaxGranularity.
  uint64_t granularity() const noexcept { return granularity_; }

  // Everything there is to report below this offset (bytes) has been handed on. Grows with Next(),
  // also over regions without extents; moves back only by Seek().
  uint64_t covered() const noexcept { return covered_; }

  // Continues at `offset` (bytes) rounded down to the granularity: what follows is the full answer
  // cut at that point, as if the cursor had run from 0. A new cursor stands at 0.
  // Errors: OUT_OF_RANGE when offset > capacity(); what the source says when it can't go there.
  // Cost:   O(log n) in the number of extents or better; reads nothing below the offset.
  [[nodiscard]] absl::Status Seek(uint64_t offset);

  // Replaces the contents of `batch` with the next extents, at most batch.capacity() of them, and
  // returns after a bounded amount of work even if it found none, so that callers can look for
  // cancellation in between. After kComplete every further call is kComplete with an empty batch.
  // Errors: DATA_LOSS when the underlying data proves inconsistent, UNAVAILABLE when it can't be
  //         read now, ABORTED when it changed meanwhile, RESOURCE_EXHAUSTED when something runs
  //         out, INTERNAL when an implementation breaks the rules of this class, or threw an
  //         exception the last time; what else the source documents. The batch is empty then.
  [[nodiscard]] absl::StatusOr<Step> Next(ExtentBatch& batch);

  // Allows the cursor to hand on one extent in pieces that touch, instead of holding it back until
  // its end is known: for consumers to whom both are the same and who should not wait, as
  // ToBlocks(). Call before the first Next(). A cursor that can't tell pieces does as before.
  void AllowPieces() {
    pieces_allowed_ = true;
    DoAllowPieces();
  }

 protected:
  // Requires: capacity <= kMaxCapacity, 1 <= granularity <= kMaxGranularity; factories check them
  // with CheckGeometry().
  ExtentCursor(uint64_t capacity, uint64_t granularity) noexcept
      : capacity_(capacity), granularity_(granularity) {}

  // Moves to `offset`, a multiple of the granularity and below the capacity.
  virtual absl::Status DoSeek(uint64_t offset) = 0;

  // Appends extents to `batch` (empty, its capacity() > 0) and returns the new coverage (bytes):
  // the offset below which nothing remains to be reported. Next() refuses an answer whose extents
  // start below the old coverage, end above the new one, or whose coverage went backwards.
  // Called only while covered() < capacity().
  virtual absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) = 0;

  bool pieces_allowed() const noexcept { return pieces_allowed_; }

  // For cursors over a cursor that hand on what they get: passes the permission on.
  virtual void DoAllowPieces() {}

 private:
  const uint64_t capacity_;
  const uint64_t granularity_;
  uint64_t covered_ = 0;
  bool pieces_allowed_ = false;
  bool interrupted_ = false;  // the source was called and has not come back
  absl::Status failure_;
};

// OK when a cursor can have this capacity and granularity (bytes), else INVALID_ARGUMENT.
absl::Status CheckGeometry(uint64_t capacity, uint64_t granularity);

// Runs `cursor` to completion and hands every batch, empty ones too (they tell progress through
// cursor.covered()), to `use`. Stops at the first error of either.
// Returns: OK only when the cursor is complete and every batch was taken.
absl::Status ForEachBatch(ExtentCursor& cursor,
                          const std::function<absl::Status(const ExtentBatch&)>& use,
                          size_t batch_capacity = ExtentBatch::kDefaultCapacity);

}  // namespace cbt

#endif  // CBT_CURSOR_H_

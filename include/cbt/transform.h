// Cursors over cursors. Each transform owns its input, has its capacity, pulls batches from it and
// seeks by seeking it. Seek() costs what the input's Seek() costs; memory is one batch per stage.
//
// The answer of a transform does not depend on where it starts: after Seek(s) it is exactly the
// answer from 0, cut at s rounded down to the granularity. (Split counts its pieces from there; the
// bytes are the same.)
//
// A transform always begins at 0: an input that has been read from is rewound to 0.
//
// Errors of all factories: INVALID_ARGUMENT for a parameter outside the range given here or a null
// input; the errors of the input's Seek(). Errors of the input pass through Next() and Seek()
// unchanged.
#ifndef CBT_TRANSFORM_H_
#define CBT_TRANSFORM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"

namespace cbt {

// Merges neighbours with at most `max_gap` bytes between them; 0 merges only those that touch (and
// turns a fixed-block cursor's blocks into extents). A gap that is bridged is reported as changed:
// fewer, longer extents for some extra bytes.
absl::StatusOr<std::unique_ptr<ExtentCursor>> Coalesce(std::unique_ptr<ExtentCursor> input,
                                                       uint64_t max_gap = 0);

// Cuts extents longer than `max_length` bytes into pieces of `max_length` (the last one shorter).
// `max_length` is a positive multiple of the input's granularity, so that a stream can be resumed
// after any piece without repeating a byte.
absl::StatusOr<std::unique_ptr<ExtentCursor>> Split(std::unique_ptr<ExtentCursor> input,
                                                    uint64_t max_length);

// Rounds extents outward to multiples of `granularity` (bytes, 1 .. kMaxGranularity), clips them at
// the capacity and merges those that then touch or overlap. `granularity` becomes the cursor's.
absl::StatusOr<std::unique_ptr<ExtentCursor>> AlignOutward(std::unique_ptr<ExtentCursor> input,
                                                           uint64_t granularity);

// Keeps what lies in [begin, end) (bytes, begin <= end <= capacity) and cuts extents there.
// Complete when the input has covered the window. Checks that the input makes at its own end (that
// an image was not written to, that a server returned OK) are made only if `end` is the capacity.
absl::StatusOr<std::unique_ptr<ExtentCursor>> Clip(std::unique_ptr<ExtentCursor> input,
                                                   uint64_t begin, uint64_t end);

// Turns extents into blocks of constant size: every tuple is [k * block_size, (k + 1) * block_size)
// for a k that holds a reported byte, each once. The last block keeps its size even if the capacity
// is not a multiple of it; it then extends past the capacity (wire contract, FIXED_LENGTH).
// `block_size`: bytes, 1 .. kMaxGranularity; the capacity rounded up to it is at most kMaxCapacity.
absl::StatusOr<std::unique_ptr<ExtentCursor>> ToBlocks(std::unique_ptr<ExtentCursor> input,
                                                       uint64_t block_size);

// What lies in any of the inputs (one or more), as maximal extents: a k-way merge. All inputs have
// the same capacity. The granularity is the greatest common divisor of the inputs'.
// Cost:    a few nanoseconds per extent for each doubling of the number of inputs; memory is a
//          batch per input and one window of about 4096 extents.
absl::StatusOr<std::unique_ptr<ExtentCursor>> Union(
    std::vector<std::unique_ptr<ExtentCursor>> inputs);

// What lies in both inputs, as maximal extents; otherwise as Union().
absl::StatusOr<std::unique_ptr<ExtentCursor>> Intersect(std::unique_ptr<ExtentCursor> a,
                                                        std::unique_ptr<ExtentCursor> b);

// What lies in `a` and not in `b`, as maximal extents; otherwise as Union(). The only transform
// that removes reported bytes: what `b` reports must be exact, not rounded outward.
absl::StatusOr<std::unique_ptr<ExtentCursor>> Subtract(std::unique_ptr<ExtentCursor> a,
                                                       std::unique_ptr<ExtentCursor> b);

// ---
// A stream shaped to a consumer's request: a window of the volume, in the consumer's own chunks,
// with small gaps bridged. Counts the unchanged bytes that this adds.

// The request. All values are bytes of the volume. They are applied in the order of declaration.
struct Requested {
  // Extents are rounded outward to multiples of this; 1: unchanged. Up to kMaxGranularity.
  uint64_t chunk = 1;
  // Extents with at most this many bytes between them become one.
  uint64_t bridge_gap = 0;
  // The window [offset, offset + length), cut at the capacity; without a length it extends to the
  // end. See Clip() for what remains unchecked when a stream is not read to its end.
  uint64_t offset = 0;
  std::optional<uint64_t> length = {};
};

// A cursor that counts the bytes it returns.
class RequestedCursor : public ExtentCursor {
 public:
  // Bytes returned since the last Seek() to an offset below the capacity, and how many of them
  // `input` had not reported: added by rounding and bridging.
  virtual uint64_t bytes() const noexcept = 0;
  virtual uint64_t added_bytes() const noexcept = 0;

 protected:
  using ExtentCursor::ExtentCursor;
};

// Errors: INVALID_ARGUMENT for a chunk out of range, OUT_OF_RANGE for a window that begins past the
//         capacity, the input's errors.
// Cost:   that of the equivalent transforms; memory of a few batches.
absl::StatusOr<std::unique_ptr<RequestedCursor>> MakeRequestedCursor(
    std::unique_ptr<ExtentCursor> input, const Requested& requested);

}  // namespace cbt

#endif  // CBT_TRANSFORM_H_

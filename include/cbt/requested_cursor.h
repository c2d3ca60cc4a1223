// A stream cut to what a consumer asked for: a window of the volume, in its own chunks, with small
// gaps bridged; and what that costs in bytes that did not change.
#ifndef CBT_REQUESTED_CURSOR_H_
#define CBT_REQUESTED_CURSOR_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"

namespace cbt {

// Bytes of the volume. Applied in the order they stand in.
struct Requested {
  // Extents are rounded outward to multiples of this; 1: as they come. Up to kMaxGranularity.
  uint64_t chunk = 1;
  // Extents with at most this many bytes between them become one.
  uint64_t bridge_gap = 0;
  // The window [offset, offset + length), cut at the capacity; length none: to the end. See Clip()
  // for what is not known of a stream that is not read to its end.
  uint64_t offset = 0;
  std::optional<uint64_t> length = {};
};

// A cursor that counts.
class RequestedCursor : public ExtentCursor {
 public:
  // Bytes handed on since the last Seek() to a place before the capacity, and those of them that
  // `input` had not reported: added by rounding and bridging. Both count what was handed on so far.
  virtual uint64_t bytes() const noexcept = 0;
  virtual uint64_t added_bytes() const noexcept = 0;

 protected:
  using ExtentCursor::ExtentCursor;
};

// Errors: INVALID_ARGUMENT for a chunk out of range, OUT_OF_RANGE for a window that begins past the
//         capacity, what the input says.
// Cost:   that of the transforms it stands for; memory of a few batches.
absl::StatusOr<std::unique_ptr<RequestedCursor>> MakeRequestedCursor(
    std::unique_ptr<ExtentCursor> input, const Requested& requested);

}  // namespace cbt

#endif  // CBT_REQUESTED_CURSOR_H_

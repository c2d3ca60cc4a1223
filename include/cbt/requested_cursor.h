// A stream shaped to a consumer's request: a window of the volume, in the consumer's own chunks,
// with small gaps bridged. Counts the unchanged bytes that this adds.
#ifndef CBT_REQUESTED_CURSOR_H_
#define CBT_REQUESTED_CURSOR_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"

namespace cbt {

// All values are bytes of the volume. They are applied in the order of declaration.
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

#endif  // CBT_REQUESTED_CURSOR_H_

// Writes an increment as an overlay of the format qcow2, version 3: what qemu and all that is built
// on it read without this library. It holds the clusters that changed, and names the image that has
// the others.
//
// Unless clusters are compressed or searched for zeros, the layout is known before any data is
// read, and the file is written from its beginning to its end, so that a pipe can take it. What was
// written in part does not look complete: the tables come last, and a file that can be written at
// any offset gets its header after everything else.
#ifndef CBT_SOURCE_OVERLAY_OVERLAY_WRITER_H_
#define CBT_SOURCE_OVERLAY_OVERLAY_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/executor.h"
#include "cbt/source/copy_ranges.h"
#include "cbt/units.h"

namespace cbt {

struct OverlayOptions {
  // As they stand in the file: what reads it resolves a relative name against the overlay's own
  // directory. Of 1 to 1023 bytes. The format is raw or qcow2.
  std::string backing_name = {};
  std::string backing_format = "raw";

  // A power of two, 512 bytes to 2 MiB: the unit in which changes are stored.
  uint64_t cluster_size = 64 * kKiB;

  // Compresses clusters with zstd, which qemu has read since 5.1. Needs a file.
  bool compress = false;
  int compression_level = 3;

  // Marks clusters that hold only zeros as such; they need not be holes. Needs a file.
  bool find_zeros = false;

  // Reads (and compresses) ahead in several threads. Without one, the calling thread does. Must
  // outlive the call.
  Executor* executor = nullptr;
  size_t pieces_in_flight = 8;  // 1 to 1024, of 1 MiB or a cluster

  std::stop_token stop = {};

  // Called by the calling thread with the bytes of data read so far, and all that will be.
  std::function<void(uint64_t done, uint64_t all)> on_progress = nullptr;
};

// What an overlay holds.
struct OverlaySummary {
  uint64_t data_bytes = 0;        // of the volume, in whole clusters
  uint64_t zero_bytes = 0;        // of the volume, marked as zeros
  uint64_t compressed_bytes = 0;  // of data_bytes, what is compressed
  uint64_t file_bytes = 0;
};

// Where an overlay is written to.
class OverlayOutput {
 public:
  virtual ~OverlayOutput() = default;

  // Whether Rewrite() is possible.
  virtual bool seekable() const = 0;

  virtual absl::Status Append(std::span<const uint8_t> bytes) = 0;
  // Appends zeros, as a hole where that can be.
  virtual absl::Status AppendZeros(uint64_t size) = 0;
  // Writes over what was appended at the beginning, once that and all else is durable.
  virtual absl::Status WriteHeader(std::span<const uint8_t> bytes) = 0;
};

// An empty regular file, or a pipe. `descriptor` must live longer; `label` names it in errors.
std::unique_ptr<OverlayOutput> MakeOverlayOutput(int descriptor, std::string_view label);

// Writes the changes that `cursor` reports, from its beginning, as `input` holds them. Whole
// clusters are written, so nothing that the cursor reports is left out.
// Returns: only after the cursor was complete and all was written. A file is then durable but for
//          its header.
// Errors:  those of the cursor, the input and the output; INVALID_ARGUMENT for options out of range
//          and for sizes that differ or are no multiple of 512; FAILED_PRECONDITION, UNIMPLEMENTED
//          without zstd; CANCELLED; RESOURCE_EXHAUSTED.
// Memory:  24 bytes for each run of clusters; with `compress` or `find_zeros` 8 bytes for each
//          cluster; and the pieces in flight.
absl::StatusOr<OverlaySummary> WriteOverlay(ExtentCursor& cursor, const CopyInput& input,
                                            OverlayOutput& output, const OverlayOptions& options);

}  // namespace cbt

#endif  // CBT_SOURCE_OVERLAY_OVERLAY_WRITER_H_

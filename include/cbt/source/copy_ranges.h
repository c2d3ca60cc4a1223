// Copies the ranges that a cursor reports from one place to another: what a backup or an
// incremental restore does with a stream. Part of cbt::source.
//
// snippet: tests/consumer/snippets/source.cc#copy
//   auto base = cbt::Image::Open("monday.img");
//   if (!base.ok()) return base.status();
//   auto target = cbt::Image::Open("tuesday.img");
//   if (!target.ok()) return target.status();
//   auto delta = cbt::MakeImageDeltaCursor(*base, *target);
//   if (!delta.ok()) return delta.status();
//   auto input = cbt::MakeCopyInput(*target);
//   auto output = cbt::MakeCopyOutput(device, "the restored volume");
//   auto done = cbt::CopyRanges(**delta, *input, *output);
#ifndef CBT_SOURCE_COPY_RANGES_H_
#define CBT_SOURCE_COPY_RANGES_H_

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
#include "cbt/source/image.h"
#include "cbt/units.h"

namespace cbt {

// Where bytes come from: an image, or a class of the caller's over an NBD export, for example. Its
// functions may run in several threads at once.
class CopyInput {
 public:
  virtual ~CopyInput() = default;

  // Size in bytes. Constant.
  virtual uint64_t size() const = 0;

  // Fills `out` with the bytes at `offset`, all of them below size(). A short read is an error.
  virtual absl::Status Read(uint64_t offset, std::span<uint8_t> out) const = 0;

  // The first bytes at or after `offset` (<= size()) that may be other than zero; an empty extent
  // at size() if none follow. What lies before them is zero for certain. Called by one thread.
  virtual absl::StatusOr<Extent> FindData(uint64_t offset) const {
    return Extent{offset, size() - offset};
  }

  // A file from which the kernel may copy (copy_file_range); -1: none.
  virtual int descriptor() const { return -1; }
};

// Where they go. Its functions may run in several threads at once, for ranges that don't overlap.
class CopyOutput {
 public:
  virtual ~CopyOutput() = default;

  // Writes all of `bytes` at `offset`.
  virtual absl::Status Write(uint64_t offset, std::span<const uint8_t> bytes) = 0;

  // Makes the extent read as zeros, without occupying space where the output can do that.
  virtual absl::Status WriteZeros(Extent extent) = 0;

  // Fills `out` with what the output holds at `offset`. Only called to verify.
  virtual absl::Status Read(uint64_t offset, std::span<uint8_t> out) = 0;

  // Returns once what was written is durable.
  virtual absl::Status Sync() = 0;

  // A file to which the kernel may copy; -1: none.
  virtual int descriptor() const { return -1; }
};

// An image as input. Holes are not read.
std::unique_ptr<CopyInput> MakeCopyInput(std::shared_ptr<const Image> image);

// A regular file or block device as output, open for writing, and for reading if the copy is
// verified. `descriptor` must live longer. `label` names it in errors. A file must have its size
// already: nothing here makes it longer or shorter but data or zeros past its end. A device that
// ends before them is RESOURCE_EXHAUSTED.
// WriteZeros() punches holes; where that is not supported it writes zeros.
std::unique_ptr<CopyOutput> MakeCopyOutput(int descriptor, std::string_view label);

// How far a copy is.
struct CopyProgress {
  // Everything that the cursor reports below this offset (bytes) has been copied, but may not be
  // durable. Never decreases. A copy that fails can go on from here, cursor.Seek(covered), unless
  // Sync() failed.
  uint64_t covered = 0;
  uint64_t ranges = 0;       // extents of the cursor so far
  uint64_t range_bytes = 0;  // their bytes
  uint64_t data_bytes = 0;   // of these, what was copied as data
  uint64_t zero_bytes = 0;   // of these, what was made zero, or skipped since it was zero already
};

struct CopyOptions {
  // Copies several pieces at once. Without one, the calling thread copies. The calling thread takes
  // part, and nothing waits for a task that has not started, so that any executor will do. Must
  // outlive the call.
  Executor* executor = nullptr;

  // The most pieces that are being copied or wait for a thread, 1 to 1024.
  size_t pieces_in_flight = 8;

  // The size of a piece in bytes: a power of two, 4 KiB to 64 MiB. Memory: one buffer of this size
  // (two with `verify`) for each piece that is being copied, none while the kernel copies.
  size_t piece_bytes = kMiB;

  // The output reads as zeros wherever the cursor reports something: a new file. What is zero in
  // the input is then left alone.
  bool output_is_zero = false;

  // Looks for zeros in data as well, in units of 4 KiB, and writes them as such. Costs a look at
  // every byte, and the kernel's copy of blocks that file systems share (reflinks).
  bool find_zeros = false;

  // Reads every piece back and compares it with the input. Finds an output that lies or loses
  // writes; a file's answer may come from the page cache, so it is no proof of what is on the disk.
  bool verify = false;

  // Calls the output's Sync() at the end. Only then a write that fails later is an error here.
  bool sync = true;

  // Accepts an input that is longer than the cursor's capacity. By default they must be equal:
  // what lies past the capacity would be missing from the copy.
  bool allow_longer_input = false;

  // Ends the copy early, with CANCELLED.
  std::stop_token stop = {};

  // Called by the calling thread, at most once for each piece and each batch of the cursor.
  std::function<void(const CopyProgress&)> on_progress = nullptr;
};

// Makes `output` equal to `input` in every extent of `cursor`, from where the cursor stands, at the
// same offsets, and leaves everything else alone.
// Returns: what was done, and only after the cursor was complete and every piece was copied.
// Errors:  those of the cursor, the input and the output, the one of the lowest offset if pieces
//          fail; INVALID_ARGUMENT for options out of range and for an input whose size does not
//          match the cursor's capacity; DATA_LOSS when verification fails; CANCELLED;
//          RESOURCE_EXHAUSTED. After an error the output is part old, part new; nothing is still
//          being written to it.
absl::StatusOr<CopyProgress> CopyRanges(ExtentCursor& cursor, const CopyInput& input,
                                        CopyOutput& output, const CopyOptions& options = {});

}  // namespace cbt

#endif  // CBT_SOURCE_COPY_RANGES_H_

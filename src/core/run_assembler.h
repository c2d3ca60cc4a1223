// From bitmap words to extents in a batch: keeps what reaches from one scan into the next.
#ifndef CBT_CORE_RUN_ASSEMBLER_H_
#define CBT_CORE_RUN_ASSEMBLER_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cbt/batch.h"
#include "core/run_sink.h"
#include "simd/extract_runs.h"

namespace cbt {

// Turns the runs of set bits that kernels find into maximal extents of a volume. The kernel writes
// straight into the batch; what the last word gave beyond its room waits here, and a run that is
// open is kept until its end is known, however many calls either takes.
//
//   while (!batch.full()) {
//     if (runs.waiting()) { runs.Take(batch); continue; }
//     position += 64 * runs.Scan(kernel, a, b, words, position, batch);
//   }
class RunAssembler {
 public:
  // `granularity`: bytes a block; `capacity`: bytes, where the last extent is cut.
  RunAssembler(uint64_t capacity, uint64_t granularity) noexcept;

  // Forgets everything.
  void Reset() noexcept;

  // Scans up to `words` words at `a` and `b` (see ExtractRunsFn), whose first bit is block `block`,
  // and appends the extents that end there to `batch`. Returns the words consumed, more than 0 when
  // there are any. Requires: !waiting(), !batch.full().
  size_t Scan(simd::ExtractRunsFn* kernel, const uint8_t* a, const uint8_t* b, size_t words,
              uint64_t block, ExtentBatch& batch) noexcept;

  // True while extents wait for room in a batch.
  bool waiting() const noexcept { return sink_.waiting(); }
  // Appends waiting extents to `batch`, as many as it has room for.
  void Take(ExtentBatch& batch) noexcept { sink_.Take(batch); }

  // True while a run has begun and not ended.
  bool open() const noexcept { return open_ != 0; }
  // Ends an open run before `block`, or at the capacity. Requires: !waiting(), !batch.full().
  void Close(uint64_t block, ExtentBatch& batch) noexcept;
  void CloseAtCapacity(ExtentBatch& batch) noexcept;
  // Hands on an open run up to `block`, if there is room, for cursors that may give pieces; what
  // follows begins a run of its own.
  void ClosePiece(uint64_t block, ExtentBatch& batch) noexcept {
    if (open() && !waiting() && !batch.full()) Close(block, batch);
  }

  // Where the first run starts that has not been handed on (bytes); none when all have been.
  std::optional<uint64_t> Pending() const noexcept;

 private:
  const uint64_t capacity_;
  const uint64_t granularity_;
  RunSink sink_;
  uint64_t open_ = 0;
  uint64_t open_start_ = 0;  // in the kernel's unit, see RunSink::shift()
};

}  // namespace cbt

#endif  // CBT_CORE_RUN_ASSEMBLER_H_

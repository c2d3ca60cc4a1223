// From bitmap words to extents in a batch, across scans.
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
// directly into the batch. Runs of the last word that exceed its room wait here, and an open run is
// kept until its end is known, over any number of calls.
//
//   while (!batch.full()) {
//     if (runs.waiting()) { runs.Take(batch); continue; }
//     position += 64 * runs.Scan(kernel, a, b, words, position, batch);
//   }
class RunAssembler {
 public:
  // `granularity`: bytes per block; `capacity`: bytes, where the last extent is cut.
  RunAssembler(uint64_t capacity, uint64_t granularity) noexcept;

  void Reset() noexcept;

  // Scans up to `words` words at `a` and `b` (see ExtractRunsFn), whose first bit is block `block`,
  // and appends the extents that end in them to `batch`. Returns the words consumed, at least 1 if
  // words > 0. Requires: !waiting(), !batch.full().
  size_t Scan(simd::ExtractRunsFn* kernel, const uint8_t* a, const uint8_t* b, size_t words,
              uint64_t block, ExtentBatch& batch) noexcept;
  // The same for words in `layout`.
  size_t Scan(simd::ExtractRunsInLayoutFn* kernel, const simd::BitLayout& layout, const uint8_t* a,
              const uint8_t* b, size_t words, uint64_t block, ExtentBatch& batch) noexcept;

  // True while extents wait for room in a batch.
  bool waiting() const noexcept { return sink_.waiting(); }
  // Appends waiting extents to `batch`, as many as it has room for.
  void Take(ExtentBatch& batch) noexcept { sink_.Take(batch); }

  // True while a run has begun but not ended.
  bool open() const noexcept { return open_ != 0; }
  // Ends an open run at `block` (exclusive), or at the capacity. Requires: !waiting(),
  // !batch.full().
  void Close(uint64_t block, ExtentBatch& batch) noexcept;
  void CloseAtCapacity(ExtentBatch& batch) noexcept;
  // Returns an open run up to `block`, if there is room, for cursors that may return pieces. What
  // follows starts a new run.
  void ClosePiece(uint64_t block, ExtentBatch& batch) noexcept {
    if (open() && !waiting() && !batch.full()) Close(block, batch);
  }

  // The start (bytes) of the first run that has not been appended, if there is one.
  std::optional<uint64_t> Pending() const noexcept;

 private:
  // scan(origin, offsets, lengths) calls a kernel.
  template <typename Kernel>
  size_t ScanWith(Kernel scan, uint64_t block, ExtentBatch& batch) noexcept;

  const uint64_t capacity_;
  const uint64_t granularity_;
  RunSink sink_;
  uint64_t open_ = 0;
  uint64_t open_start_ = 0;  // in the kernel's unit, see RunSink::shift()
};

}  // namespace cbt

#endif  // CBT_CORE_RUN_ASSEMBLER_H_

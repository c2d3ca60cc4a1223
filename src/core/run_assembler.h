// From the edges that kernels find to extents: pairs starts with ends, across calls.
#ifndef CBT_CORE_RUN_ASSEMBLER_H_
#define CBT_CORE_RUN_ASSEMBLER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "cbt/batch.h"

namespace cbt {

// Turns edges (block indexes, in turn the first block of a run and the first block after it) into
// maximal extents. Edges wait here until a batch has room for them, and a run that is still open
// is kept until its end is known, however many calls either takes.
//
//   while (!batch.full()) {
//     if (runs.waiting()) { runs.Take(batch); continue; }
//     scan = kernel(..., runs.carry(), runs.buffer(), runs.kBuffer);
//     runs.Found(scan.edges);
//   }
class RunAssembler {
 public:
  static constexpr size_t kBuffer = 1024;

  // `granularity`: bytes a block; `capacity`: bytes, where the last extent is cut.
  RunAssembler(uint64_t capacity, uint64_t granularity) noexcept
      : capacity_(capacity), granularity_(granularity) {}

  // Forgets everything.
  void Reset() noexcept;

  // Where a scan writes edges, kBuffer of them at most. Requires: !waiting().
  uint64_t* buffer() noexcept { return edges_.data(); }
  // Says that buffer() holds `edges` new ones.
  void Found(size_t edges) noexcept;
  // The carry that the next scan must be given. Requires: !waiting().
  uint64_t carry() const noexcept { return open_ ? 1 : 0; }

  // True while edges wait for room in a batch.
  bool waiting() const noexcept { return taken_ < found_; }
  // Appends the extents that waiting edges end to `batch`, as many as it has room for.
  void Take(ExtentBatch& batch) noexcept;

  // True while a run has begun and not ended.
  bool open() const noexcept { return open_; }
  // Ends an open run before `block`, or at the capacity. Requires: !waiting(), !batch.full().
  void Close(uint64_t block, ExtentBatch& batch) noexcept;
  void CloseAtCapacity(ExtentBatch& batch) noexcept;

  // Where the first run starts that has not been handed on (bytes); none when all have been.
  std::optional<uint64_t> Pending() const noexcept;

 private:
  const uint64_t capacity_;
  const uint64_t granularity_;
  uint64_t open_block_ = 0;
  bool open_ = false;
  size_t taken_ = 0;
  size_t found_ = 0;
  std::array<uint64_t, kBuffer> edges_;
};

}  // namespace cbt

#endif  // CBT_CORE_RUN_ASSEMBLER_H_

#include "core/run_assembler.h"

#include <algorithm>

namespace cbt {

RunAssembler::RunAssembler(uint64_t capacity, uint64_t granularity) noexcept
    : capacity_(capacity), granularity_(granularity), sink_(capacity, granularity) {}

void RunAssembler::Reset() noexcept {
  open_ = 0;
  sink_.Reset();
}

size_t RunAssembler::Scan(simd::ExtractRunsFn* kernel, const uint8_t* a, const uint8_t* b,
                          size_t words, uint64_t block, ExtentBatch& batch) noexcept {
  uint64_t* const offsets = batch.mutable_offsets() + batch.size();
  uint64_t* const lengths = batch.mutable_lengths() + batch.size();
  const unsigned shift = sink_.shift();
  offsets[0] = open_start_;
  const simd::RunScan scan =
      kernel(a, b, words, block << shift, shift, open_, offsets, lengths, batch.room());
  open_ = scan.open;
  open_start_ = offsets[scan.runs];
  sink_.Scale(offsets, lengths, scan.runs);
  sink_.Append(scan.runs, batch);
  return scan.words;
}

void RunAssembler::Close(uint64_t block, ExtentBatch& batch) noexcept {
  if (!open()) return;
  const uint64_t begin = open_start_ * sink_.factor();
  batch.push_back({begin, std::min(block * granularity_, capacity_) - begin});
  open_ = 0;
}

void RunAssembler::CloseAtCapacity(ExtentBatch& batch) noexcept {
  Close(BlockCount(capacity_, granularity_), batch);
}

std::optional<uint64_t> RunAssembler::Pending() const noexcept {
  if (waiting()) return sink_.front().offset;
  if (open()) return open_start_ * sink_.factor();
  return std::nullopt;
}

}  // namespace cbt

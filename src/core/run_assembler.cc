#include "core/run_assembler.h"

#include <algorithm>

namespace cbt {

RunAssembler::RunAssembler(uint64_t capacity, uint64_t granularity) noexcept
    : capacity_(capacity), granularity_(granularity), sink_(capacity, granularity) {}

void RunAssembler::Reset() noexcept {
  open_ = 0;
  sink_.Reset();
}

template <typename Kernel>
size_t RunAssembler::ScanWith(Kernel scan, uint64_t block, ExtentBatch& batch) noexcept {
  uint64_t* const offsets = batch.mutable_offsets() + batch.size();
  uint64_t* const lengths = batch.mutable_lengths() + batch.size();
  offsets[0] = open_start_;
  const simd::RunScan found = scan(block << sink_.shift(), offsets, lengths);
  open_ = found.open;
  open_start_ = offsets[found.runs];
  sink_.Scale(offsets, lengths, found.runs);
  sink_.Append(found.runs, batch);
  return found.words;
}

size_t RunAssembler::Scan(simd::ExtractRunsFn* kernel, const uint8_t* a, const uint8_t* b,
                          size_t words, uint64_t block, ExtentBatch& batch) noexcept {
  return ScanWith(
      [&](uint64_t origin, uint64_t* offsets, uint64_t* lengths) {
        return kernel(a, b, words, origin, sink_.shift(), open_, offsets, lengths, batch.room());
      },
      block, batch);
}

size_t RunAssembler::Scan(simd::ExtractRunsInLayoutFn* kernel, const simd::BitLayout& layout,
                          const uint8_t* a, const uint8_t* b, size_t words, uint64_t block,
                          ExtentBatch& batch) noexcept {
  return ScanWith(
      [&](uint64_t origin, uint64_t* offsets, uint64_t* lengths) {
        return kernel(layout, a, b, words, origin, sink_.shift(), open_, offsets, lengths,
                      batch.room());
      },
      block, batch);
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

#include "core/run_assembler.h"

#include <algorithm>
#include <bit>

namespace cbt {

static_assert(ExtentBatch::kSlack >= simd::kRunSlack);

RunAssembler::RunAssembler(uint64_t capacity, uint64_t granularity) noexcept
    : capacity_(capacity),
      granularity_(granularity),
      shift_(IsPowerOfTwo(granularity) ? static_cast<unsigned>(std::countr_zero(granularity)) : 0),
      factor_(IsPowerOfTwo(granularity) ? 1 : granularity) {}

void RunAssembler::Reset() noexcept {
  open_ = 0;
  taken_ = 0;
  waiting_ = 0;
}

size_t RunAssembler::Scan(simd::ExtractRunsFn* kernel, const uint8_t* a, const uint8_t* b,
                          size_t words, uint64_t block, ExtentBatch& batch) noexcept {
  uint64_t* const offsets = batch.mutable_offsets() + batch.size();
  uint64_t* const lengths = batch.mutable_lengths() + batch.size();
  const size_t room = batch.room();
  offsets[0] = open_start_;
  const simd::RunScan scan =
      kernel(a, b, words, block << shift_, shift_, open_, offsets, lengths, room);
  open_ = scan.open;
  open_start_ = offsets[scan.runs];
  if (scan.runs == 0) return scan.words;
  if (factor_ != 1) {
    for (size_t i = 0; i < scan.runs; ++i) {
      offsets[i] *= factor_;
      lengths[i] *= factor_;
    }
  }
  // The last extent alone can reach past the capacity.
  const size_t last = scan.runs - 1;
  lengths[last] = std::min(lengths[last], capacity_ - offsets[last]);
  const size_t kept = std::min(scan.runs, room);
  batch.set_size(batch.size() + kept);
  taken_ = 0;
  waiting_ = scan.runs - kept;
  for (size_t i = 0; i < waiting_; ++i) extents_[i] = {offsets[kept + i], lengths[kept + i]};
  return scan.words;
}

void RunAssembler::Take(ExtentBatch& batch) noexcept {
  while (waiting() && !batch.full()) batch.push_back(extents_[taken_++]);
}

void RunAssembler::Close(uint64_t block, ExtentBatch& batch) noexcept {
  if (!open()) return;
  const uint64_t begin = open_start_ * factor_;
  batch.push_back({begin, std::min(block * granularity_, capacity_) - begin});
  open_ = 0;
}

void RunAssembler::CloseAtCapacity(ExtentBatch& batch) noexcept {
  Close(BlockCount(capacity_, granularity_), batch);
}

std::optional<uint64_t> RunAssembler::Pending() const noexcept {
  if (waiting()) return extents_[taken_].offset;
  if (open()) return open_start_ * factor_;
  return std::nullopt;
}

}  // namespace cbt

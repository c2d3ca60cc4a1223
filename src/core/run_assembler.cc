#include "core/run_assembler.h"

#include <algorithm>

namespace cbt {

void RunAssembler::Reset() noexcept {
  open_ = false;
  taken_ = 0;
  found_ = 0;
}

void RunAssembler::Found(size_t edges) noexcept {
  taken_ = 0;
  found_ = edges;
}

void RunAssembler::Take(ExtentBatch& batch) noexcept {
  // Two edges a place: with a run open the first edge ends it, and the last one of an even number
  // opens the next, so the extents that end here are never more than the places.
  const size_t count = std::min(found_ - taken_, 2 * batch.room());
  if (count == 0) return;
  const uint64_t* edges = edges_.data() + taken_;
  taken_ += count;
  size_t rest = count;
  if (open_) {
    Close(*edges++, batch);
    --rest;
  }
  // The loop knows no branch and no state: the last extent alone can reach past the capacity.
  const size_t runs = rest / 2;
  uint64_t* const offsets = batch.mutable_offsets() + batch.size();
  uint64_t* const lengths = batch.mutable_lengths() + batch.size();
  for (size_t run = 0; run < runs; ++run) {
    offsets[run] = edges[2 * run] * granularity_;
    lengths[run] = (edges[2 * run + 1] - edges[2 * run]) * granularity_;
  }
  if (runs > 0) {
    lengths[runs - 1] = std::min(lengths[runs - 1], capacity_ - offsets[runs - 1]);
    batch.set_size(batch.size() + runs);
  }
  if (rest % 2 != 0) {
    open_ = true;
    open_block_ = edges[rest - 1];
  }
}

void RunAssembler::Close(uint64_t block, ExtentBatch& batch) noexcept {
  if (!open_) return;
  const uint64_t begin = open_block_ * granularity_;
  batch.push_back({begin, std::min(block * granularity_, capacity_) - begin});
  open_ = false;
}

void RunAssembler::CloseAtCapacity(ExtentBatch& batch) noexcept {
  Close(BlockCount(capacity_, granularity_), batch);
}

std::optional<uint64_t> RunAssembler::Pending() const noexcept {
  if (open_) return open_block_ * granularity_;
  if (waiting()) return edges_[taken_] * granularity_;
  return std::nullopt;
}

}  // namespace cbt

// The last step from a kernel's runs of blocks to extents in a batch.
#ifndef CBT_CORE_RUN_SINK_H_
#define CBT_CORE_RUN_SINK_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "cbt/batch.h"
#include "simd/extract_runs.h"

namespace cbt {

// Takes runs that a kernel wrote past the extents of a batch: converts them to bytes, cuts the last
// one at the capacity, and keeps those for which the batch has no room until it has.
//
// Inline, because the cost of a call would show where stretches are short.
class RunSink {
 public:
  // Both in bytes.
  RunSink(uint64_t capacity, uint64_t granularity) noexcept
      : capacity_(capacity),
        shift_(IsPowerOfTwo(granularity) ? static_cast<unsigned>(std::countr_zero(granularity))
                                         : 0),
        factor_(IsPowerOfTwo(granularity) ? 1 : granularity) {}

  // From now on what is appended is not cut: fixed blocks may extend past the capacity.
  void TakeWhole() noexcept { capacity_ = ~uint64_t{0}; }

  // Kernels shift block numbers by shift(). What they write is in bytes if the granularity is a
  // power of two; otherwise shift() is 0, they write blocks, and factor() is the granularity.
  unsigned shift() const noexcept { return shift_; }
  uint64_t factor() const noexcept { return factor_; }

  // Multiplies `count` runs by factor().
  void Scale(uint64_t* offsets, uint64_t* lengths, size_t count) const noexcept {
    if (factor_ == 1) return;
    for (size_t i = 0; i < count; ++i) {
      offsets[i] *= factor_;
      lengths[i] *= factor_;
    }
  }

  // Appends to `batch` the `runs` runs (bytes) that were written to its arrays from batch.size()
  // on. At most kRunSlack of them may be past its capacity; these wait. The last run alone may
  // extend past the volume's capacity. Requires: !waiting().
  void Append(size_t runs, ExtentBatch& batch) noexcept {
    if (runs == 0) return;
    const uint64_t* const offsets = batch.mutable_offsets() + batch.size();
    uint64_t* const lengths = batch.mutable_lengths() + batch.size();
    const size_t last = runs - 1;
    lengths[last] = std::min(lengths[last], capacity_ - offsets[last]);
    const size_t kept = std::min(runs, batch.room());
    batch.set_size(batch.size() + kept);
    taken_ = 0;
    waiting_ = runs - kept;
    for (size_t i = 0; i < waiting_; ++i) extents_[i] = {offsets[kept + i], lengths[kept + i]};
  }

  // True while extents wait for room in a batch.
  bool waiting() const noexcept { return taken_ < waiting_; }
  // The first of them. Requires: waiting().
  const Extent& front() const noexcept { return extents_[taken_]; }
  // Moves waiting extents to `batch`, as many as it has room for.
  void Take(ExtentBatch& batch) noexcept {
    while (waiting() && !batch.full()) batch.push_back(extents_[taken_++]);
  }

  // Drops what waits.
  void Reset() noexcept { taken_ = waiting_ = 0; }

 private:
  static_assert(ExtentBatch::kSlack >= simd::kRunSlack);

  uint64_t capacity_;
  const unsigned shift_;
  const uint64_t factor_;
  size_t taken_ = 0;
  size_t waiting_ = 0;
  std::array<Extent, simd::kRunSlack> extents_;
};

}  // namespace cbt

#endif  // CBT_CORE_RUN_SINK_H_

// The sizes of all deltas of a history, without computing a delta per pair.
#ifndef CBT_PROGRAMS_CBT_HISTORY_DELTA_SIZES_H_
#define CBT_PROGRAMS_CBT_HISTORY_DELTA_SIZES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/btree_map.h"
#include "cbt/extent.h"

namespace cbt::cli {

// Bytes that an epoch changed, by the epoch of their previous change. Epoch t covers the changes
// from snapshot t - 1 to snapshot t.
struct AgedBytes {
  // The epoch of the previous change is in [oldest, newest]; 0: no epoch changed these bytes
  // before.
  uint32_t oldest = 0;
  uint32_t newest = 0;
  uint64_t bytes = 0;

  friend bool operator==(const AgedBytes&, const AgedBytes&) = default;
};

struct SizeBounds {
  uint64_t least = 0;  // bytes
  uint64_t most = 0;

  friend bool operator==(const SizeBounds&, const SizeBounds&) = default;
};

// Walks the epochs in order and records for each range which epoch changed it last. A byte belongs
// to the delta from snapshot i to j if an epoch in (i, j] changed it. It is counted in the first
// such epoch: the one whose previous change was in epoch i or earlier. So the delta's size is the
// sum over the epochs t in (i, j] of the bytes whose previous change was in [0, i].
//
// Memory is bounded: beyond the limits, ranges or ages are merged, and bytes of a merged entry that
// may or may not belong to a delta only count in `most`. Deltas of adjacent snapshots stay exact.
//
// Sizes are those of the union of the epochs' extents. Belongs to one thread at a time.
class DeltaSizes {
 public:
  struct Limits {
    size_t ranges = size_t{1} << 22;   // whose last change is recorded
    size_t entries = size_t{1} << 21;  // of AgedBytes
  };

  DeltaSizes() : DeltaSizes(Limits()) {}
  explicit DeltaSizes(const Limits& limits) : limits_(limits) {}

  // Adds an extent of the current epoch; epochs start at 1. Extents of an epoch ascend and do not
  // overlap. Cost: amortised O(log ranges).
  void Add(Extent extent);
  // Ends the current epoch.
  void EndEpoch();

  // Merges ages further, so that fewer entries remain. Returns false if they can't be merged any
  // more.
  bool Coarsen();

  // The number of completed epochs.
  size_t epochs() const noexcept { return ends_.size(); }
  // The entries of an epoch (1 .. epochs()), ascending by `newest`.
  const AgedBytes* begin(size_t epoch) const noexcept {
    return entries_.data() + (epoch == 1 ? 0 : ends_[epoch - 2]);
  }
  const AgedBytes* end(size_t epoch) const noexcept { return entries_.data() + ends_[epoch - 1]; }
  size_t entries() const noexcept { return entries_.size(); }

  // The size of the union of the epochs in (base, target]. Requires: base <= target <= epochs().
  // Cost: linear in the entries of these epochs.
  SizeBounds Between(size_t base, size_t target) const noexcept;

  // The number of recorded ranges visited: the cost of Add().
  uint64_t visited() const noexcept { return visited_; }

 private:
  struct Range {
    uint64_t end = 0;
    uint32_t oldest = 0;  // the epochs that changed its bytes last
    uint32_t newest = 0;
  };

  // The current epoch's ages are merged at this number, and again whenever they have doubled.
  static constexpr size_t kPresentEntries = size_t{1} << 16;

  void Count(uint32_t oldest, uint32_t newest, uint64_t bytes);
  void MergeRanges();
  void MergeAges(uint32_t epoch, std::vector<AgedBytes>& entries) const;

  const Limits limits_;
  absl::btree_map<uint64_t, Range> ranges_;  // by offset
  std::vector<AgedBytes> present_;           // of the current epoch, in the order of the extents
  size_t present_limit_ = kPresentEntries;
  std::vector<AgedBytes> entries_;  // of the completed epochs
  std::vector<size_t> ends_;        // ends_[t - 1]: one past the last entry of epoch t
  unsigned level_ = 0;              // how far ages are merged
  uint64_t visited_ = 0;
};

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_HISTORY_DELTA_SIZES_H_

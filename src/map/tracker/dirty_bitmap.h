// A dense bitmap in which any number of threads set bits concurrently.
#ifndef CBT_MAP_TRACKER_DIRTY_BITMAP_H_
#define CBT_MAP_TRACKER_DIRTY_BITMAP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"

namespace cbt {

// A bit per block of a volume, in memory that costs nothing until it is touched, and a byte per
// container, so that the cost of reading and clearing depends on what was touched.
class DirtyBitmap {
 public:
  // Errors: RESOURCE_EXHAUSTED if the memory can't be reserved.
  static absl::StatusOr<std::unique_ptr<DirtyBitmap>> Create(uint64_t blocks);
  ~DirtyBitmap();
  DirtyBitmap(const DirtyBitmap&) = delete;
  DirtyBitmap& operator=(const DirtyBitmap&) = delete;

  // Sets the bits [begin, end), begin < end <= blocks. Any number of threads. Does not order
  // memory: a reader must know that the call has returned.
  void Mark(uint64_t begin, uint64_t end) noexcept;

  // True if all bits [begin, end) are set, so that Mark() would do nothing. Most writes repeat
  // earlier ones: this takes no cache line away from another thread and does not branch on the
  // bits, so that the loads of consecutive writes overlap. They overlap the more the fewer
  // instructions there are.
  bool HasAll(uint64_t begin, uint64_t end) const noexcept {
    uint64_t* const words = words_;
    const auto missing_in = [words](uint64_t word) {
      return ~std::atomic_ref<uint64_t>(words[word]).load(std::memory_order_acquire);
    };
    const uint64_t first = begin / 64;
    const uint64_t last = (end - 1) / 64;
    const uint64_t head = ~uint64_t{0} << begin % 64;
    const uint64_t tail = ~uint64_t{0} >> (63 - (end - 1) % 64);
    if (first == last) return (missing_in(first) & head & tail) == 0;
    uint64_t missing = (missing_in(first) & head) | (missing_in(last) & tail);
    for (uint64_t i = first + 1; i < last; ++i) missing |= missing_in(i);
    return missing == 0;
  }

  // Sets the bits of a map of the same volume.
  void MarkAll(const ChangeMapView& map) noexcept;

  // The set bits as a map; may run while other threads set more.
  absl::StatusOr<ChangeMap> ToMap(const VolumeGeometry& geometry) const;

  // Clears everything. No other thread may use the bitmap meanwhile.
  void Clear() noexcept;

 private:
  DirtyBitmap(void* memory, size_t mapped, uint64_t containers) noexcept;

  void* const memory_;
  const size_t mapped_;
  const uint64_t containers_;
  uint64_t* const words_;
  uint8_t* const touched_;
};

}  // namespace cbt

#endif  // CBT_MAP_TRACKER_DIRTY_BITMAP_H_

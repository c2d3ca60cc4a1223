// A dense bitmap that any number of threads set bits in at once.
#ifndef CBT_MAP_DIRTY_BITMAP_H_
#define CBT_MAP_DIRTY_BITMAP_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"

namespace cbt {

// A bit for each block of a volume, in memory that costs nothing until it is touched, and a byte
// for each container, so that reading and clearing cost what was touched.
class DirtyBitmap {
 public:
  // Errors: RESOURCE_EXHAUSTED when the memory can't be had.
  static absl::StatusOr<std::unique_ptr<DirtyBitmap>> Create(uint64_t blocks);
  ~DirtyBitmap();
  DirtyBitmap(const DirtyBitmap&) = delete;
  DirtyBitmap& operator=(const DirtyBitmap&) = delete;

  // Sets the bits [begin, end), begin < end <= blocks. Any number of threads; says nothing about
  // when others see them: whoever reads must know that the call has returned.
  void Mark(uint64_t begin, uint64_t end) noexcept;

  // Sets the bits of a map of the same volume.
  void MarkAll(const ChangeMapView& map) noexcept;

  // The set bits as a map; may run while others set more.
  absl::StatusOr<ChangeMap> ToMap(const VolumeGeometry& geometry) const;

  // Clears everything. Nobody else may use the bitmap meanwhile.
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

#endif  // CBT_MAP_DIRTY_BITMAP_H_

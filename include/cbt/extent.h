// Byte ranges of a volume, and the arithmetic on them that every layer uses.
//
// All offsets and lengths are bytes, all ranges are half open. No volume is larger than
// kMaxCapacity, because the wire contracts carry offsets as int64. The sum of two values within
// that bound can't wrap in uint64_t; the functions here rely on it.
#ifndef CBT_EXTENT_H_
#define CBT_EXTENT_H_

#include <cstdint>
#include <limits>
#include <string_view>

#include "cbt/version.h"

namespace cbt {

// The largest volume capacity (bytes) that any cursor accepts.
inline constexpr uint64_t kMaxCapacity = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

// The largest granularity or block size (bytes). Rounding a valid offset up to it can't wrap.
inline constexpr uint64_t kMaxGranularity = uint64_t{1} << 62;

// The bytes [offset, offset + length) of a volume.
struct Extent {
  uint64_t offset = 0;
  uint64_t length = 0;

  // The first byte after the extent.
  constexpr uint64_t end() const noexcept { return offset + length; }

  friend constexpr bool operator==(const Extent&, const Extent&) = default;
};

// The size of a volume and of its blocks, both in bytes. Name both, they are easily swapped:
//
//   {.capacity = 64 * cbt::kGiB, .granularity = 4 * cbt::kKiB}
//
// Valid if capacity <= kMaxCapacity and 1 <= granularity <= kMaxGranularity; the functions that
// take one check this (see CheckGeometry()). The capacity need not be a multiple of the
// granularity.
struct VolumeGeometry {
  uint64_t capacity = 0;
  uint64_t granularity = 1;

  friend constexpr bool operator==(const VolumeGeometry&, const VolumeGeometry&) = default;
};

// The largest multiple of `granularity` (> 0, not necessarily a power of two) that is <= `offset`.
constexpr uint64_t AlignDown(uint64_t offset, uint64_t granularity) noexcept {
  return offset - offset % granularity;
}

// The smallest multiple of `granularity` (1 .. kMaxGranularity) that is >= `offset`
// (<= kMaxCapacity). May exceed kMaxCapacity, never wraps.
constexpr uint64_t AlignUp(uint64_t offset, uint64_t granularity) noexcept {
  const uint64_t rest = offset % granularity;
  return rest == 0 ? offset : offset + (granularity - rest);
}

// The number of blocks of `granularity` bytes that cover `capacity` bytes; the last one may be
// partial.
constexpr uint64_t BlockCount(uint64_t capacity, uint64_t granularity) noexcept {
  return capacity / granularity + (capacity % granularity != 0 ? 1 : 0);
}
// The number of blocks of a volume. Requires: geometry.granularity > 0.
constexpr uint64_t BlockCount(const VolumeGeometry& geometry) noexcept {
  return BlockCount(geometry.capacity, geometry.granularity);
}

constexpr bool IsPowerOfTwo(uint64_t value) noexcept {
  return value != 0 && (value & (value - 1)) == 0;
}

// How a stream reports ranges. Values as on the wire.
enum class BlockMetadataType : int32_t {
  kUnknown = 0,
  kFixedLength = 1,     // every tuple of a stream has the same size
  kVariableLength = 2,  // extents
};

// "FIXED_LENGTH", "VARIABLE_LENGTH" or "UNKNOWN".
std::string_view BlockMetadataTypeName(BlockMetadataType type) noexcept;

}  // namespace cbt

#endif  // CBT_EXTENT_H_

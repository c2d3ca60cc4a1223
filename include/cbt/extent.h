// Byte ranges of a volume and the arithmetic that everything above needs on them.
//
// All offsets and lengths are bytes, all ranges are half open. Volumes end at kMaxCapacity at the
// latest, because the wire contracts carry offsets as int64; sums of two values below that bound
// can't wrap in uint64_t, and the functions here rely on it.
#ifndef CBT_EXTENT_H_
#define CBT_EXTENT_H_

#include <cstdint>
#include <limits>

namespace cbt {

// The largest volume capacity (bytes) that any cursor accepts.
inline constexpr uint64_t kMaxCapacity = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

// The largest granularity or block size (bytes). With it, rounding a valid offset up can't wrap.
inline constexpr uint64_t kMaxGranularity = uint64_t{1} << 62;

// The bytes [offset, offset + length) of a volume.
struct Extent {
  uint64_t offset = 0;
  uint64_t length = 0;

  // The first byte after the extent.
  constexpr uint64_t end() const noexcept { return offset + length; }

  friend constexpr bool operator==(const Extent&, const Extent&) = default;
};

// The largest multiple of `granularity` (> 0, any number) that is <= `offset`.
constexpr uint64_t AlignDown(uint64_t offset, uint64_t granularity) noexcept {
  return offset - offset % granularity;
}

// The smallest multiple of `granularity` (1 .. kMaxGranularity) that is >= `offset`
// (<= kMaxCapacity). May exceed kMaxCapacity, never wraps.
constexpr uint64_t AlignUp(uint64_t offset, uint64_t granularity) noexcept {
  const uint64_t rest = offset % granularity;
  return rest == 0 ? offset : offset + (granularity - rest);
}

// How many blocks of `granularity` bytes cover `capacity` bytes; the last one may be partial.
constexpr uint64_t BlockCount(uint64_t capacity, uint64_t granularity) noexcept {
  return capacity / granularity + (capacity % granularity != 0 ? 1 : 0);
}

constexpr bool IsPowerOfTwo(uint64_t value) noexcept {
  return value != 0 && (value & (value - 1)) == 0;
}

}  // namespace cbt

#endif  // CBT_EXTENT_H_

// A container of a roaring bitmap, read in place from serialised bytes: the blocks of a volume that
// share all but the lowest 16 bits of their index.
#ifndef CBT_MAP_CONTAINER_H_
#define CBT_MAP_CONTAINER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cbt {

inline constexpr unsigned kContainerShift = 16;
inline constexpr uint32_t kContainerBlocks = 1u << kContainerShift;
inline constexpr size_t kBitsetWords = kContainerBlocks / 64;
inline constexpr size_t kBitsetBytes = kContainerBlocks / 8;
// A container without runs is an array up to this cardinality, and a bitset above.
inline constexpr uint32_t kMaxArrayCardinality = 4096;

enum class ContainerKind : uint8_t { kArray, kBitset, kRun };

// The bits of a container, as little-endian words.
using ContainerWords = std::array<uint64_t, kBitsetWords>;

struct Container {
  uint64_t key = 0;               // block index >> 16
  const uint8_t* data = nullptr;  // values, words or pairs (see simd/containers.h), any alignment
  uint32_t count = 0;             // values or pairs
  uint32_t cardinality = 0;       // blocks, 1 .. 65536
  ContainerKind kind = ContainerKind::kArray;

  bool full() const noexcept { return cardinality == kContainerBlocks; }
  uint64_t first_block() const noexcept { return key << kContainerShift; }
};

// Bytes of a container that is not a list of runs.
constexpr uint32_t PlainBytes(uint32_t cardinality) noexcept {
  return cardinality <= kMaxArrayCardinality ? 2 * cardinality
                                             : static_cast<uint32_t>(kBitsetBytes);
}

// Little-endian numbers at any alignment.
template <typename T>
inline T LoadNumber(const uint8_t* bytes) noexcept {
  T number;
  std::memcpy(&number, bytes, sizeof(number));
  return number;
}
inline uint16_t LoadU16(const uint8_t* bytes) noexcept { return LoadNumber<uint16_t>(bytes); }
inline uint32_t LoadU32(const uint8_t* bytes) noexcept { return LoadNumber<uint32_t>(bytes); }
inline uint64_t LoadU64(const uint8_t* bytes) noexcept { return LoadNumber<uint64_t>(bytes); }

// Checks the contents: order, overlap, cardinality. Returns what is wrong; null if they are sound.
// The functions below require sound containers.
const char* CheckContainer(const Container& container) noexcept;

// The highest value.
uint32_t LastValue(const Container& container) noexcept;

// The number of maximal runs of blocks within the container.
uint32_t CountRuns(const Container& container) noexcept;

// The number of values below `value` (at most 65536).
uint32_t CountBelow(const Container& container, uint32_t value) noexcept;

// The index of the first value, or of the first pair that ends, at or above `value`; `count` if
// no such element exists. For arrays and lists of runs.
uint32_t LowerBound(const Container& container, uint32_t value) noexcept;

bool ContainsValue(const Container& container, uint32_t value) noexcept;

// Sets bits [begin, end) of a container.
void SetRange(ContainerWords& words, uint32_t begin, uint32_t end) noexcept;

// ORs the container's bits into `words`.
void UniteInto(const Container& container, ContainerWords& words) noexcept;

// The most that FoldBits() folds: then a bitset makes one word.
inline constexpr unsigned kMaxFolds = 10;

// Writes kBitsetWords >> fold words, of which each bit is the OR of `1 << fold` bits of a bitset.
// `fold`: 0 .. kMaxFolds. The two don't overlap.
void FoldBits(const uint8_t* bitset, unsigned fold, uint64_t* words) noexcept;

// Replaces `words` with the container's bits.
void CopyInto(const Container& container, ContainerWords& words) noexcept;

}  // namespace cbt

#endif  // CBT_MAP_CONTAINER_H_

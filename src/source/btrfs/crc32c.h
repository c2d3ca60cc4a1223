// The CRC-32C (Castagnoli) of RFC 3720, as btrfs uses it.
#ifndef CBT_SOURCE_BTRFS_CRC32C_H_
#define CBT_SOURCE_BTRFS_CRC32C_H_

#include <cstdint>
#include <span>

namespace cbt {

// The register after `bytes`, from what it was before: nothing is inverted, neither at the
// beginning nor at the end. With the processor's instruction where the active level (cbt/simd.h)
// has it: a few GB/s.
uint32_t ExtendCrc32c(uint32_t crc, std::span<const uint8_t> bytes) noexcept;

// The same from tables, eight bytes a step.
uint32_t ExtendCrc32cPortable(uint32_t crc, std::span<const uint8_t> bytes) noexcept;

}  // namespace cbt

#endif  // CBT_SOURCE_BTRFS_CRC32C_H_

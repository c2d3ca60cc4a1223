// The CRC-32C (Castagnoli) of RFC 3720, as btrfs uses it.
#ifndef CBT_SOURCE_BTRFS_CRC32C_H_
#define CBT_SOURCE_BTRFS_CRC32C_H_

#include <cstdint>
#include <span>

namespace cbt {

// The register after `bytes`, starting from `crc`: neither input nor result is inverted. Uses the
// processor's instruction if the active level (cbt/simd.h) has it: a few GB/s.
uint32_t ExtendCrc32c(uint32_t crc, std::span<const uint8_t> bytes) noexcept;

// The same with tables, eight bytes per step.
uint32_t ExtendCrc32cPortable(uint32_t crc, std::span<const uint8_t> bytes) noexcept;

}  // namespace cbt

#endif  // CBT_SOURCE_BTRFS_CRC32C_H_

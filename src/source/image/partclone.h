// The header of partclone images.
#ifndef CBT_SOURCE_IMAGE_PARTCLONE_H_
#define CBT_SOURCE_IMAGE_PARTCLONE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cbt {

inline constexpr std::string_view kPartcloneMagic = "partclone-image";
inline constexpr size_t kPartcloneHeaderBytes = 110;

// Format 0002. The numbers are consistent with each other.
struct PartcloneHeader {
  uint64_t device_bytes = 0;  // of the partition
  uint64_t blocks = 0;        // of the file system, and bits of the bitmap after the header
  uint64_t block_size = 0;    // bytes
  bool has_bitmap = false;    // otherwise every block is in the image
};

// Errors: DATA_LOSS for a wrong checksum or impossible numbers, UNIMPLEMENTED for other formats,
//         INVALID_ARGUMENT for anything else.
absl::StatusOr<PartcloneHeader> ReadPartcloneHeader(
    std::span<const uint8_t, kPartcloneHeaderBytes> bytes, const std::string& label);

// CRC-32 with the usual polynomial, not inverted at the end.
inline constexpr uint32_t kCrc32Begin = 0xffffffff;
uint32_t Crc32(uint32_t crc, std::span<const uint8_t> bytes) noexcept;

uint32_t LoadLittle(std::span<const uint8_t, 4> bytes) noexcept;

}  // namespace cbt

#endif  // CBT_SOURCE_IMAGE_PARTCLONE_H_

// Partclone images, as far as the bitmap.
#ifndef CBT_TESTS_SOURCE_SUPPORT_PARTCLONE_H_
#define CBT_TESTS_SOURCE_SUPPORT_PARTCLONE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace cbt::test {

inline std::string LittleEndian(uint64_t value, size_t width) {
  std::string text;
  for (size_t i = 0; i < width; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

// CRC-32, bit by bit, not inverted at the end.
inline uint32_t PartcloneChecksum(std::string_view text) {
  uint32_t crc = 0xffffffff;
  for (const char c : text) {
    crc ^= static_cast<uint8_t>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
  }
  return crc;
}

struct PartcloneOptions {
  uint64_t block_size = 4096;
  uint64_t blocks = 8;
  uint64_t device_bytes = 8 * 4096;
  std::string version = "0002";
  uint8_t bitmap_mode = 1;
};

// An image with this bitmap.
inline std::string WritePartclone(std::string_view bitmap, const PartcloneOptions& options = {}) {
  std::string text("partclone-image\0", 16);
  text += std::string("0.3.23\0\0\0\0\0\0\0\0", 14) + options.version + "\xde\xc0";
  text += std::string("EXTFS", 5) + std::string(11, '\0');
  text += LittleEndian(options.device_bytes, 8) + LittleEndian(options.blocks, 8);
  text += LittleEndian(1, 8) + LittleEndian(1, 8) + LittleEndian(options.block_size, 4);
  text += LittleEndian(18, 4) + LittleEndian(2, 2) + LittleEndian(64, 2) + LittleEndian(32, 2) +
          LittleEndian(4, 2) + LittleEndian(1024, 4) + '\x01' +
          static_cast<char>(options.bitmap_mode);
  text += LittleEndian(PartcloneChecksum(text), 4);
  text += bitmap;
  if (options.bitmap_mode == 1) text += LittleEndian(PartcloneChecksum(bitmap), 4);
  return text;
}

}  // namespace cbt::test

#endif  // CBT_TESTS_SOURCE_SUPPORT_PARTCLONE_H_

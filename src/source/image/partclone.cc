#include "source/image/partclone.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/cursor.h"
#include "cbt/extent.h"
#include "cbt/units.h"

namespace cbt {
namespace {

// Offsets in the header.
constexpr size_t kVersionAt = 30;
constexpr size_t kEndiannessAt = 34;
constexpr size_t kDeviceBytesAt = 52;
constexpr size_t kBlocksAt = 60;
constexpr size_t kBlockSizeAt = 84;
constexpr size_t kBitmapModeAt = 105;
constexpr size_t kChecksumAt = 106;

constexpr uint32_t kLittleEndian = 0xc0de;
constexpr uint8_t kNoBitmap = 0;
constexpr uint8_t kOneBit = 1;

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = MakeCrcTable();

}  // namespace

uint32_t Crc32(uint32_t crc, std::span<const uint8_t> bytes) noexcept {
  for (const uint8_t byte : bytes) crc = crc >> 8 ^ kCrcTable[(crc ^ byte) & 0xff];
  return crc;
}

uint32_t LoadLittle(std::span<const uint8_t, 4> bytes) noexcept {
  return uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 |
         uint32_t{bytes[3]} << 24;
}

absl::StatusOr<PartcloneHeader> ReadPartcloneHeader(
    std::span<const uint8_t, kPartcloneHeaderBytes> bytes, const std::string& label) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto number = [&bytes](size_t at) {
    return LoadLittle(std::span<const uint8_t, 4>(bytes.subspan(at).first<4>()));
  };
  const auto wide = [&number](size_t at) {
    return uint64_t{number(at)} | uint64_t{number(at + 4)} << 32;
  };
  if (!text.starts_with(kPartcloneMagic)) {
    return absl::InvalidArgumentError(absl::StrCat(label, ": is not a partclone image"));
  }
  if (text.substr(kVersionAt, 4) != "0002") {
    return absl::UnimplementedError(absl::StrCat(
        label, ": a partclone image that is not of format 0002, which partclone writes since 0.3"));
  }
  const auto mode = bytes[kBitmapModeAt];
  if ((number(kEndiannessAt) & 0xffff) != kLittleEndian || (mode != kNoBitmap && mode != kOneBit)) {
    return absl::UnimplementedError(absl::StrCat(
        label, ": a partclone image of a big-endian machine, or without one bit for each block"));
  }
  if (Crc32(kCrc32Begin, bytes.first(kChecksumAt)) != number(kChecksumAt)) {
    return absl::DataLossError(
        absl::StrCat(label, ": the checksum of partclone's header does not match"));
  }
  const PartcloneHeader header = {.device_bytes = wide(kDeviceBytesAt),
                                  .blocks = wide(kBlocksAt),
                                  .block_size = number(kBlockSizeAt),
                                  .has_bitmap = mode == kOneBit};
  const bool possible =
      CheckGeometry({.capacity = header.device_bytes, .granularity = header.block_size}).ok() &&
      header.blocks <= kMaxCapacity / header.block_size &&
      BlockCount(header.device_bytes, header.block_size) >= header.blocks;
  if (!possible) {
    return absl::DataLossError(absl::StrCat(
        label, ": partclone's header contradicts itself: ", header.blocks, " blocks of ",
        header.block_size, " bytes on a device of ", header.device_bytes));
  }
  return header;
}

}  // namespace cbt

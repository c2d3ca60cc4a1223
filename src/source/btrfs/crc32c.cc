#include "source/btrfs/crc32c.h"

#include <array>
#include <cstddef>

#include "cbt/simd.h"

namespace cbt {
namespace {

// Table k advances a byte by k further bytes of zeros ("slicing by eight": M. E. Kounavis, F. L.
// Berry, A Systematic Approach to Building High Performance Software-based CRC Generators, 2005).
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // 0x1edc6f41, least significant bit first
  Tables tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

uint32_t LoadLittle(const uint8_t* bytes) noexcept {
  return uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 |
         uint32_t{bytes[3]} << 24;
}

uint32_t ExtendPortable(uint32_t crc, const uint8_t* at, size_t left) noexcept {
  for (; left >= 8; at += 8, left -= 8) {
    const uint32_t low = LoadLittle(at) ^ crc;
    const uint32_t high = LoadLittle(at + 4);
    crc = kTables[7][low & 0xff] ^ kTables[6][low >> 8 & 0xff] ^ kTables[5][low >> 16 & 0xff] ^
          kTables[4][low >> 24] ^ kTables[3][high & 0xff] ^ kTables[2][high >> 8 & 0xff] ^
          kTables[1][high >> 16 & 0xff] ^ kTables[0][high >> 24];
  }
  for (; left > 0; ++at, --left) crc = crc >> 8 ^ kTables[0][(crc ^ *at) & 0xff];
  return crc;
}

using ExtendFn = uint32_t(uint32_t, const uint8_t*, size_t) noexcept;

#if defined(__x86_64__)
// One instruction per eight bytes, with a latency of three cycles. Calls no other function, so that
// none is compiled for newer machines than this one.
__attribute__((target("sse4.2"))) uint32_t ExtendSse42(uint32_t crc, const uint8_t* at,
                                                       size_t left) noexcept {
  uint64_t wide = crc;
  for (; left >= 8; at += 8, left -= 8) {
    unsigned long long word = 0;
    __builtin_memcpy(&word, at, sizeof(word));
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; left > 0; ++at, --left) crc = __builtin_ia32_crc32qi(crc, *at);
  return crc;
}
#endif

ExtendFn* Choose() noexcept {
#if defined(__x86_64__)
  if (ActiveSimdLevel() >= SimdLevel::kSse42) {
    // A broken checksum would refuse every stream, or look like damage in the streams.
    std::array<uint8_t, 61> bytes;
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37);
    if (ExtendSse42(1, bytes.data(), bytes.size()) ==
        ExtendPortable(1, bytes.data(), bytes.size())) {
      return ExtendSse42;
    }
  }
#endif
  return ExtendPortable;
}

}  // namespace

uint32_t ExtendCrc32cPortable(uint32_t crc, std::span<const uint8_t> bytes) noexcept {
  return ExtendPortable(crc, bytes.data(), bytes.size());
}

uint32_t ExtendCrc32c(uint32_t crc, std::span<const uint8_t> bytes) noexcept {
  static ExtendFn* const extend = Choose();
  return extend(crc, bytes.data(), bytes.size());
}

}  // namespace cbt

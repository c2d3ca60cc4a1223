// The encoding half of cbt/wire/message.h. Kernels encode the tuples.
#include "cbt/extent.h"
#include "cbt/wire/message.h"
#include "simd/kernels.h"

namespace cbt {

static_assert(kMaxTupleBytes == simd::kTupleBytes);

std::string_view BlockMetadataTypeName(BlockMetadataType type) noexcept {
  switch (type) {
    case BlockMetadataType::kFixedLength:
      return "FIXED_LENGTH";
    case BlockMetadataType::kVariableLength:
      return "VARIABLE_LENGTH";
    case BlockMetadataType::kUnknown:
      break;
  }
  return "UNKNOWN";
}

size_t EncodeHeader(BlockMetadataType type, uint64_t capacity, uint8_t* out) noexcept {
  uint8_t* p = out;
  if (type != BlockMetadataType::kUnknown) {
    *p++ = 0x08;
    *p++ = static_cast<uint8_t>(type);
  }
  if (capacity != 0) {
    *p++ = 0x10;
    for (; capacity >= 0x80; capacity >>= 7) *p++ = static_cast<uint8_t>(capacity | 0x80);
    *p++ = static_cast<uint8_t>(capacity);
  }
  return static_cast<size_t>(p - out);
}

EncodedTuples EncodeTuples(std::span<const uint64_t> offsets, std::span<const uint64_t> lengths,
                           std::span<uint8_t> out) noexcept {
  const simd::TupleScan scan = simd::EncodeTuples().encode(offsets.data(), lengths.data(),
                                                           offsets.size(), out.data(), out.size());
  return {scan.tuples, scan.bytes};
}

}  // namespace cbt

// The decoding half of cbt/wire.h.
#include "absl/strings/str_cat.h"
#include "cbt/wire.h"
#include "wire/proto_reader.h"

namespace cbt {
namespace {

using wire::ProtoReader;
using wire::WireType;

absl::Status NegativeError(const char* what, size_t position) {
  return absl::InvalidArgumentError(
      absl::StrCat("metadata message: ", what, " at byte ", position, " is negative"));
}

absl::StatusOr<Extent> DecodeTuple(std::span<const uint8_t> bytes, size_t position) {
  Extent tuple;
  ProtoReader reader(bytes, position);
  while (reader.Next()) {
    if (reader.Is(1, WireType::kVarint)) tuple.offset = reader.varint();
    if (reader.Is(2, WireType::kVarint)) tuple.length = reader.varint();
  }
  if (absl::Status status = reader.status(); !status.ok()) return status;
  if (tuple.offset > kMaxCapacity) return NegativeError("byte_offset of the tuple", position);
  if (tuple.length > kMaxCapacity) return NegativeError("size_bytes of the tuple", position);
  return tuple;
}

}  // namespace

absl::StatusOr<MetadataMessage> DecodeMetadataMessage(std::span<const uint8_t> bytes) {
  MetadataMessage message;
  uint64_t type = 0;
  ProtoReader reader(bytes);
  while (reader.Next()) {
    if (reader.Is(3, WireType::kBytes)) {
      absl::StatusOr<Extent> tuple = DecodeTuple(reader.bytes(), reader.content_position());
      if (!tuple.ok()) return tuple.status();
      message.tuples.push_back(*tuple);
    } else if (reader.Is(1, WireType::kVarint)) {
      type = reader.varint();
    } else if (reader.Is(2, WireType::kVarint)) {
      message.capacity = reader.varint();
    }
  }
  if (absl::Status status = reader.status(); !status.ok()) return status;
  if (message.capacity > kMaxCapacity) return NegativeError("volume_capacity_bytes", 0);
  if (type > static_cast<uint64_t>(BlockMetadataType::kVariableLength)) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata message: unknown block_metadata_type ", type));
  }
  message.type = static_cast<BlockMetadataType>(type);
  return message;
}

}  // namespace cbt

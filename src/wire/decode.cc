// The decoding half of cbt/wire/message.h.
#include "absl/strings/str_cat.h"
#include "cbt/extent.h"
#include "cbt/wire/message.h"
#include "wire/piece_decoder.h"
#include "wire/proto_reader.h"

namespace cbt {
namespace {

using wire::ProtoReader;
using wire::WireType;

constexpr uint8_t kTupleTag = 3 << 3 | 2;

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

absl::Status DecodeMetadataMessage(std::span<const uint8_t> bytes, MetadataMessage& message) {
  message.type = BlockMetadataType::kUnknown;
  message.capacity = 0;
  message.tuples.clear();
  uint64_t type = 0;
  size_t position = 0;
  while (position < bytes.size()) {
    // The kernel decodes what encoders write. Other valid encodings, and errors, are read field by
    // field.
    if (bytes[position] == kTupleTag) {
      const size_t done = wire::DecodeUsualTuples(bytes.subspan(position), message.tuples);
      position += done;
      if (done != 0) continue;
    }
    ProtoReader reader(bytes.subspan(position), position);
    if (!reader.Next()) {
      if (absl::Status status = reader.status(); !status.ok()) return status;
      break;
    }
    position += reader.position();
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
  if (message.capacity > kMaxCapacity) return NegativeError("volume_capacity_bytes", 0);
  if (type > static_cast<uint64_t>(BlockMetadataType::kVariableLength)) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata message: unknown block_metadata_type ", type));
  }
  message.type = static_cast<BlockMetadataType>(type);
  return absl::OkStatus();
}

absl::StatusOr<MetadataMessage> DecodeMetadataMessage(std::span<const uint8_t> bytes) {
  MetadataMessage message;
  if (absl::Status status = DecodeMetadataMessage(bytes, message); !status.ok()) return status;
  return message;
}

}  // namespace cbt

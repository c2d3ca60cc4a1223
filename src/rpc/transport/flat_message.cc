#include "rpc/transport/flat_message.h"

#include <cstring>

#include "absl/strings/string_view.h"
#include "wire/piece_decoder.h"

namespace cbt::rpc {
namespace {

// False if the message has to be decoded as a whole.
bool DecodePieces(const absl::Cord& message, MetadataMessage& decoded) {
  wire::PieceDecoder decoder(decoded);
  for (const absl::string_view piece : message.Chunks()) {
    if (!decoder.Add({reinterpret_cast<const uint8_t*>(piece.data()), piece.size()})) return false;
  }
  return decoder.Finish();
}

}  // namespace

std::span<const uint8_t> FlatMessage::Of(const absl::Cord& message) {
  if (const auto flat = message.TryFlat(); flat.has_value()) {
    return {reinterpret_cast<const uint8_t*>(flat->data()), flat->size()};
  }
  const size_t size = message.size();
  if (bytes_.size() < size) bytes_.resize(size);
  size_t at = 0;
  for (const absl::string_view piece : message.Chunks()) {
    std::memcpy(bytes_.data() + at, piece.data(), piece.size());
    at += piece.size();
  }
  return {bytes_.data(), size};
}

absl::Status FlatMessage::Decode(const absl::Cord& message, MetadataMessage& decoded) {
  if (!message.TryFlat().has_value() && DecodePieces(message, decoded)) return absl::OkStatus();
  return DecodeMetadataMessage(Of(message), decoded);
}

}  // namespace cbt::rpc

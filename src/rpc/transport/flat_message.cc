#include "rpc/transport/flat_message.h"

#include <cstring>

#include "absl/strings/string_view.h"

namespace cbt::rpc {

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

}  // namespace cbt::rpc

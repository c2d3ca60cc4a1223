#include "rpc/transport/flat_message.h"

#include <cstring>

namespace cbt::rpc {

std::span<const uint8_t> FlatMessage::Of(const grpc::ByteBuffer& message) {
  slices_.clear();
  if (!message.Dump(&slices_).ok()) return {};
  if (slices_.size() == 1) return {slices_[0].begin(), slices_[0].size()};
  size_t size = 0;
  for (const grpc::Slice& slice : slices_) size += slice.size();
  if (bytes_.size() < size) bytes_.resize(size);
  size_t at = 0;
  for (const grpc::Slice& slice : slices_) {
    std::memcpy(bytes_.data() + at, slice.begin(), slice.size());
    at += slice.size();
  }
  slices_.clear();
  return {bytes_.data(), size};
}

}  // namespace cbt::rpc

// The bytes of a gRPC buffer in one piece.
#ifndef CBT_RPC_TRANSPORT_BYTE_BUFFER_H_
#define CBT_RPC_TRANSPORT_BYTE_BUFFER_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <span>
#include <vector>

namespace cbt::rpc {

// Keeps the bytes alive; copies them only when the buffer holds several slices.
class FlatBytes {
 public:
  explicit FlatBytes(const grpc::ByteBuffer& buffer) {
    // Both calls fail on a buffer without contents only, which then counts as empty.
    if (!buffer.TrySingleSlice(&slice_).ok() && !buffer.DumpToSingleSlice(&slice_).ok()) {
      slice_ = grpc::Slice();
    }
  }

  std::span<const uint8_t> bytes() const { return {slice_.begin(), slice_.size()}; }

 private:
  grpc::Slice slice_;
};

// Whether gRPC hands over a message as it was compressed. It says so of a message in one piece; one
// in several is at least 8 KiB of what no compressor's output decodes to.
inline bool IsCompressed(const grpc::ByteBuffer& buffer) {
  grpc::Slice whole;
  if (buffer.Length() == 0 || buffer.TrySingleSlice(&whole).ok()) return false;
  std::vector<grpc::Slice> slices;
  return buffer.Dump(&slices).ok() && slices.size() == 1;
}

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_BYTE_BUFFER_H_

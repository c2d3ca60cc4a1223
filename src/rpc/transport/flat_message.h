// The bytes of a gRPC message as one contiguous span, in reused memory.
#ifndef CBT_RPC_TRANSPORT_FLAT_MESSAGE_H_
#define CBT_RPC_TRANSPORT_FLAT_MESSAGE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <span>
#include <vector>

namespace cbt::rpc {

// Belongs to one thread at a time.
class FlatMessage {
 public:
  // Valid until the next call.
  std::span<const uint8_t> Of(const grpc::ByteBuffer& message);

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<uint8_t> bytes_;
};

// Whether gRPC returned the message still compressed. Known for a message in one slice; a message
// in several has at least 8 KiB, and compressed bytes of that size never decode.
inline bool IsCompressed(const grpc::ByteBuffer& buffer) {
  grpc::Slice whole;
  if (buffer.Length() == 0 || buffer.TrySingleSlice(&whole).ok()) return false;
  std::vector<grpc::Slice> slices;
  return buffer.Dump(&slices).ok() && slices.size() == 1;
}

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_FLAT_MESSAGE_H_

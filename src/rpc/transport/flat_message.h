// The bytes of a gRPC message in one piece, in memory that is used again.
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

// Whether gRPC hands over a message as it was compressed. It says so of a message in one piece; one
// in several is at least 8 KiB of what no compressor's output decodes to.
inline bool IsCompressed(const grpc::ByteBuffer& buffer) {
  grpc::Slice whole;
  if (buffer.Length() == 0 || buffer.TrySingleSlice(&whole).ok()) return false;
  std::vector<grpc::Slice> slices;
  return buffer.Dump(&slices).ok() && slices.size() == 1;
}

}  // namespace cbt::rpc

#endif  // CBT_RPC_TRANSPORT_FLAT_MESSAGE_H_

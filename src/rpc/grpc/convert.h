// Messages and statuses in gRPC's types.
#ifndef CBT_RPC_GRPC_CONVERT_H_
#define CBT_RPC_GRPC_CONVERT_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace cbt::rpc {

// The same memory, referenced; only pieces of a few hundred bytes are copied. Both throw
// std::bad_alloc.
grpc::ByteBuffer ToByteBuffer(const absl::Cord& message);
absl::Cord ToCord(const grpc::ByteBuffer& message);

// Whether gRPC returned the message still compressed. Known for a message in one slice; a message
// in several has at least 8 KiB, and compressed bytes of that size never decode.
bool IsCompressed(const grpc::ByteBuffer& buffer);

// What is sent of `status`: see StatusForWire(). The text is omitted if there is no memory for it.
grpc::Status ToGrpcStatus(const absl::Status& status) noexcept;

}  // namespace cbt::rpc

#endif  // CBT_RPC_GRPC_CONVERT_H_

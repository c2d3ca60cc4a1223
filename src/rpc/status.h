// Statuses across the gRPC border, in both directions.
#ifndef CBT_RPC_STATUS_H_
#define CBT_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace cbt::rpc {

// The longest status text (bytes) that is sent. A text travels in the trailers, percent-encoded,
// and receivers refuse trailers of more than 8 KiB: a longer text would replace the code by theirs.
inline constexpr size_t kMaxStatusText = 1024;

// The same code number with the text, cut at kMaxStatusText; no details, payloads stay behind.
grpc::Status ToGrpcStatus(const absl::Status& status);

// The same code number with the text.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace cbt::rpc

#endif  // CBT_RPC_STATUS_H_

// Statuses across the gRPC border, in both directions.
#ifndef CBT_RPC_CONTRACT_STATUS_H_
#define CBT_RPC_CONTRACT_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cbt::rpc {

// The longest status text (bytes) that is sent. A text travels in the trailers, percent-encoded,
// and receivers refuse trailers of more than 8 KiB: a longer text would replace the code by theirs.
inline constexpr size_t kMaxStatusText = 1024;

// The same code number with the text, cut at kMaxStatusText; no details, payloads stay behind. The
// text is left out where there is no memory for it: a call that isn't ended stays open for good.
grpc::Status ToGrpcStatus(const absl::Status& status) noexcept;

// The same code number with the text, which is left out where there is no memory for it: what ends
// a call must not throw.
absl::Status FromGrpcStatus(const grpc::Status& status) noexcept;

// A status for those who must end a call whatever happens: without the text where there is no
// memory for it.
absl::Status MakeStatusNoThrow(absl::StatusCode code, absl::string_view text) noexcept;

// RESOURCE_EXHAUSTED without a text, which would take memory.
inline absl::Status OutOfMemory() noexcept { return {absl::StatusCode::kResourceExhausted, ""}; }

// What ends a call whose request does not come.
absl::Status RequestTooLate() noexcept;
absl::Status RequestMissing() noexcept;

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_STATUS_H_

// Statuses of calls.
#ifndef CBT_RPC_CONTRACT_STATUS_H_
#define CBT_RPC_CONTRACT_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cbt::rpc {

// The longest status text (bytes) that is sent. It is percent-encoded in the trailers, and
// receivers that refuse trailers over 8 KiB replace the status with their own.
inline constexpr size_t kMaxStatusText = 1024;

// What a transport sends of `status`: the same code and text, cut at kMaxStatusText; payloads are
// dropped. The text is omitted if there is no memory for it: a call that is not ended stays open
// indefinitely.
absl::Status StatusForWire(absl::Status status) noexcept;

// A status for callers that must end a call in any case. The text is omitted if there is no memory
// for it.
absl::Status MakeStatusNoThrow(absl::StatusCode code, absl::string_view text) noexcept;

// RESOURCE_EXHAUSTED without a text, which would need memory.
inline absl::Status OutOfMemory() noexcept { return {absl::StatusCode::kResourceExhausted, ""}; }

// The statuses of calls whose request is late or missing.
absl::Status RequestTooLate() noexcept;
absl::Status RequestMissing() noexcept;

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_STATUS_H_

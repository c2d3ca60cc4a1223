#include "rpc/contract/status.h"

#include <new>
#include <string>

namespace cbt::rpc {

grpc::Status ToGrpcStatus(const absl::Status& status) noexcept try {
  if (status.ok()) return grpc::Status::OK;
  std::string text(status.message());
  if (text.size() > kMaxStatusText) {
    size_t end = kMaxStatusText;
    // Do not cut inside a UTF-8 sequence.
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    text.resize(end);
  }
  return {static_cast<grpc::StatusCode>(status.code()), text};
} catch (const std::bad_alloc&) {
  return {static_cast<grpc::StatusCode>(status.code()), ""};
}

absl::Status FromGrpcStatus(const grpc::Status& status) noexcept try {
  if (status.ok()) return absl::OkStatus();
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
} catch (const std::bad_alloc&) {
  return {static_cast<absl::StatusCode>(status.error_code()), ""};
}

absl::Status MakeStatusNoThrow(absl::StatusCode code, absl::string_view text) noexcept try {
  return {code, text};
} catch (const std::bad_alloc&) {
  return {code, ""};
}

absl::Status RequestTooLate() noexcept {
  return MakeStatusNoThrow(absl::StatusCode::kDeadlineExceeded,
                           "the request did not arrive in time");
}

absl::Status RequestMissing() noexcept {
  return MakeStatusNoThrow(absl::StatusCode::kInvalidArgument, "the call has no request");
}

}  // namespace cbt::rpc

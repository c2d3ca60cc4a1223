#include "rpc/contract/status.h"

#include <new>
#include <utility>

namespace cbt::rpc {

absl::Status StatusForWire(absl::Status status) noexcept {
  if (status.ok()) return status;
  const absl::string_view text = status.message();
  size_t end = text.size();
  if (end > kMaxStatusText) {
    end = kMaxStatusText;
    // Do not cut inside a UTF-8 sequence.
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  }
  return MakeStatusNoThrow(status.code(), text.substr(0, end));
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

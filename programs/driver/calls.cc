#include "programs/driver/calls.h"

#include <utility>

#include "rpc/grpc/convert.h"

namespace cbt::driver {

Calls::Calls(std::string driver_name, rpc::LogSink* log)
    : driver_name_(std::move(driver_name)),
      log_(log),
      seconds_("csi_sidecar_operations_seconds",
               "[ALPHA] Container Storage Interface operation duration with gRPC error code") {}

absl::Status Calls::Unexpected(const char* text) noexcept try {
  return absl::InternalError(text);
} catch (const std::bad_alloc&) {
  return {absl::StatusCode::kInternal, ""};
}

grpc::Status Calls::Finish(std::string_view method, const absl::Status& status,
                           std::chrono::nanoseconds time) noexcept {
  seconds_.Observe(driver_name_, method, status.code(), time);
  if (!status.ok()) {
    try {
      log_.Failed("call failed", status, {{.key = "method", .value = std::string(method)}});
    } catch (const std::bad_alloc&) {
      // The client still learns it.
    }
  }
  return rpc::ToGrpcStatus(status);
}

}  // namespace cbt::driver

// What every call of the driver's services has in common: its status, its time and its log record.
#ifndef CBT_PROGRAMS_DRIVER_CALLS_H_
#define CBT_PROGRAMS_DRIVER_CALLS_H_

#include <grpcpp/support/status.h>

#include <chrono>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "ops/event_log.h"
#include "ops/operation_seconds.h"

namespace cbt::driver {

// Thread safe. Neither records nor series hold what clients send.
class Calls {
 public:
  Calls(std::string driver_name, rpc::LogSink* log);

  // Runs `body`, which returns an absl::Status, as the call `method`: its path, as gRPC has it.
  template <typename Body>
  grpc::Status Run(std::string_view method, Body body) noexcept {
    const auto begin = std::chrono::steady_clock::now();
    absl::Status status;
    try {
      status = body();
    } catch (const std::bad_alloc&) {
      status = absl::Status(absl::StatusCode::kResourceExhausted, "");
    } catch (const std::exception& error) {
      status = Unexpected(error.what());
    }
    return Finish(method, status, std::chrono::steady_clock::now() - begin);
  }

  ops::EventLog& log() noexcept { return log_; }
  // The text that a scrape returns.
  std::string Text() const { return seconds_.Text(); }

 private:
  static absl::Status Unexpected(const char* text) noexcept;
  grpc::Status Finish(std::string_view method, const absl::Status& status,
                      std::chrono::nanoseconds time) noexcept;

  const std::string driver_name_;
  ops::EventLog log_;
  ops::OperationSeconds seconds_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_CALLS_H_

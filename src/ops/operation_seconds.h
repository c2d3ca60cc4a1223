// The histogram that Kubernetes' sidecars and drivers have of their operations.
#ifndef CBT_OPS_OPERATION_SECONDS_H_
#define CBT_OPS_OPERATION_SECONDS_H_

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace cbt::ops {

// The name that Go's gRPC has for a code: "OK", "InvalidArgument".
std::string_view GoCodeName(absl::StatusCode code) noexcept;

// NAME{driver_name,method_name,grpc_status_code}, in the buckets of Kubernetes' components. Thread
// safe.
class OperationSeconds {
 public:
  OperationSeconds(const std::string& name, const std::string& help);
  ~OperationSeconds();
  OperationSeconds(const OperationSeconds&) = delete;
  OperationSeconds& operator=(const OperationSeconds&) = delete;

  // Neither `driver` nor `method` may be chosen by clients: each value is a series. An observation
  // for which there is no memory is lost.
  void Observe(const std::string& driver, std::string_view method, absl::StatusCode code,
               std::chrono::nanoseconds time) noexcept;

  // The text that a scrape returns.
  std::string Text() const;

 private:
  class Core;
  const std::unique_ptr<Core> core_;
};

}  // namespace cbt::ops

#endif  // CBT_OPS_OPERATION_SECONDS_H_

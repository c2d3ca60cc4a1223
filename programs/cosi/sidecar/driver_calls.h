// Calls of the driver: cosi.v1alpha1.Provisioner.
#ifndef CBT_PROGRAMS_COSI_SIDECAR_DRIVER_CALLS_H_
#define CBT_PROGRAMS_COSI_SIDECAR_DRIVER_CALLS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/cosi/sidecar/messages.h"
#include "rpc/transport/client_call.h"

namespace cbt::kube::cosi {

// Each call waits for its answer. The connection is opened again whenever it is lost. Thread safe.
// Errors: the driver's; UNAVAILABLE if it can't be reached, CANCELLED after `stop`; INTERNAL for an
// answer that can't be read.
class DriverCalls {
 public:
  // Called after each call; `method` is its name.
  using OnCall = std::function<void(const char* method, absl::StatusCode code)>;

  // Errors: INVALID_ARGUMENT for an address that can't be used.
  static absl::StatusOr<std::unique_ptr<DriverCalls>> Create(const std::string& address,
                                                             std::chrono::milliseconds time,
                                                             OnCall on_call);

  absl::StatusOr<std::string> Name(const std::stop_token& stop);
  // Returns the bucket's ID.
  absl::StatusOr<std::string> CreateBucket(const std::string& name, const Object& protocol,
                                           const Parameters& parameters);
  // OK also if it is gone.
  absl::Status DeleteBucket(const std::string& bucket_id);
  absl::StatusOr<GrantAnswer> Grant(const std::string& bucket_id, const std::string& account_name,
                                    const std::string& policy, const Parameters& parameters);
  // OK also if the account is gone.
  absl::Status Revoke(const std::string& bucket_id, const std::string& account_id);

  // Ends what is under way.
  void Stop() { stop_.request_stop(); }

 private:
  DriverCalls(std::shared_ptr<rpc::Channel> channel, std::chrono::milliseconds time, OnCall on_call)
      : channel_(std::move(channel)), time_(time), on_call_(std::move(on_call)) {}
  // The bytes of the answer, which may be secret.
  absl::StatusOr<Secret> Call(const char* method, const std::string& request,
                              const std::stop_token& stop);

  const std::shared_ptr<rpc::Channel> channel_;
  const std::chrono::milliseconds time_;
  const OnCall on_call_;
  std::stop_source stop_;
};

// Whether the same call can succeed later without a change of what is asked. If not, it is repeated
// seldom: a driver may be mended (C16: a known account with another policy).
bool IsWorthRetry(const absl::Status& error);

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_SIDECAR_DRIVER_CALLS_H_

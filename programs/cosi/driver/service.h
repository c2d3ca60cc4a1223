// The method tables of three revisions over one store.
#ifndef CBT_PROGRAMS_COSI_DRIVER_SERVICE_H_
#define CBT_PROGRAMS_COSI_DRIVER_SERVICE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/executor.h"
#include "programs/cosi/contract/contract.h"
#include "programs/cosi/driver/bucket_store.h"
#include "rpc/transport/server_call.h"

namespace cbt::cosi {

class CosiService final : public rpc::Service {
 public:
  // Open calls at a time; further ones get RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxCalls = 2048;

  // Called at the end of each call.
  using Observer = std::function<void(std::string_view path, const absl::Status& status,
                                      std::chrono::nanoseconds time)>;

  // The references outlive the service and its calls.
  CosiService(BucketStore& store, DriverInfo info, Executor& executor, Observer observer);

 private:
  // An encoded request becomes an encoded answer.
  using Answer = std::function<absl::StatusOr<std::string>(MessageBytes request)>;
  class Call;

  void Serve(Revision revision);
  Answer AnswerOf(const Contract& contract, Revision revision, cosi::Method method);

  BucketStore& store_;
  const DriverInfo info_;
  Executor& executor_;
  const Observer observer_;
  std::atomic<size_t> open_{0};
};

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_DRIVER_SERVICE_H_

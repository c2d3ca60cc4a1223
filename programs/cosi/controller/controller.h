// The controller of the proposal's first revision: requests of users become Buckets and accesses.
#ifndef CBT_PROGRAMS_COSI_CONTROLLER_CONTROLLER_H_
#define CBT_PROGRAMS_COSI_CONTROLLER_CONTROLLER_H_

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "programs/cosi/controller/options.h"

namespace cbt::kube::cosi {

// A running controller. Thread safe.
class Controller {
 public:
  // The API server need not be there yet.
  // Errors: INVALID_ARGUMENT for options that can't work, those of Client::Create(), UNAVAILABLE if
  //         the HTTP endpoint can't listen.
  static absl::StatusOr<std::unique_ptr<Controller>> Start(ControllerOptions options);

  // Calls Shutdown() without grace unless it was called before.
  ~Controller();
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  // The objects of the cluster are known.
  bool ready() const;
  int http_port() const noexcept;  // or 0

  // What is worked on is finished, and the lease is released.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit Controller(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_CONTROLLER_CONTROLLER_H_

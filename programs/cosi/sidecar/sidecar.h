// The sidecar of a COSI driver of the proposal's first revision: Buckets and accesses of its driver
// become buckets and accounts of the backend.
#ifndef CBT_PROGRAMS_COSI_SIDECAR_SIDECAR_H_
#define CBT_PROGRAMS_COSI_SIDECAR_SIDECAR_H_

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "programs/cosi/sidecar/options.h"

namespace cbt::kube::cosi {

// A running sidecar. Thread safe.
class Sidecar {
 public:
  // Neither driver nor API server need be there yet; the driver is waited for.
  // Errors: INVALID_ARGUMENT for options that can't work, those of Client::Create(), UNAVAILABLE if
  //         the HTTP endpoint can't listen.
  static absl::StatusOr<std::unique_ptr<Sidecar>> Start(SidecarOptions options);

  // Calls Shutdown() without grace unless it was called before.
  ~Sidecar();
  Sidecar(const Sidecar&) = delete;
  Sidecar& operator=(const Sidecar&) = delete;

  // The driver answers, and its objects are known.
  bool ready() const;
  int http_port() const noexcept;  // or 0

  // Calls of the driver end, and the lease is released.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit Sidecar(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_SIDECAR_SIDECAR_H_

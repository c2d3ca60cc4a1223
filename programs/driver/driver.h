// A CSI driver for volumes that track their own changes: Identity, Controller, Node and
// SnapshotMetadata on one socket.
#ifndef CBT_PROGRAMS_DRIVER_DRIVER_H_
#define CBT_PROGRAMS_DRIVER_DRIVER_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/driver/options.h"

namespace cbt::driver {

class Driver {
 public:
  // Returns once clients can connect.
  // Errors: INVALID_ARGUMENT for options, UNAVAILABLE if another driver has the state directory or
  //         an address can't be listened on, FAILED_PRECONDITION if another server has the socket;
  //         file errors of the state directory.
  static absl::StatusOr<std::unique_ptr<Driver>> Start(const DriverOptions& options);
  // Shutdown() without a grace period.
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Where clients connect.
  std::string address() const;

  // Drains: new calls are refused, open ones continue for up to `grace`. Volumes stay attached and
  // served: their users need no driver. May be called more than once, from any thread.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit Driver(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_DRIVER_H_

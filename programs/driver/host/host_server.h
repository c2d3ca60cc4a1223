// The process that keeps a driver's volumes attached, `cbt-driver volume-host`.
#ifndef CBT_PROGRAMS_DRIVER_HOST_HOST_SERVER_H_
#define CBT_PROGRAMS_DRIVER_HOST_HOST_SERVER_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::driver {

struct HostOptions {
  // The driver's directory; an absolute path.
  std::string state_directory;
  // nbdkit's plugin, its name or its path.
  std::string nbdkit_plugin = "cbt";
};

// Listens at STATE/host.sock for the driver, see host_message.h. Only processes of the same user
// can connect. All functions are thread safe.
class HostServer {
 public:
  // Makes the state directory if it is missing. Waits up to `wait` for an earlier host of the same
  // state to end. Errors: UNAVAILABLE if it does not end, INVALID_ARGUMENT for the directory, file
  // errors.
  static absl::StatusOr<std::unique_ptr<HostServer>> Start(const HostOptions& options,
                                                           std::chrono::milliseconds wait);
  // Shutdown() without a grace period.
  ~HostServer();
  HostServer(const HostServer&) = delete;
  HostServer& operator=(const HostServer&) = delete;

  const std::string& address() const noexcept;
  // Nothing is attached, and no driver has been connected for `time`.
  bool IsIdle(std::chrono::milliseconds time) const;

  // Takes no more requests, answers those that were read from volumes, ends the volumes' servers.
  // Waits up to `grace` for a driver that keeps the sessions, if there are some.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Core;
  explicit HostServer(std::unique_ptr<Core> core);
  const std::unique_ptr<Core> core_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_HOST_HOST_SERVER_H_

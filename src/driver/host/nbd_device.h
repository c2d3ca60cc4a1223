// Devices of the kernel's NBD client, by its generic netlink interface (linux/nbd-netlink.h).
#ifndef CBT_DRIVER_HOST_NBD_DEVICE_H_
#define CBT_DRIVER_HOST_NBD_DEVICE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::driver {

// Where the kernel shows its block devices.
inline constexpr char kBlockDevices[] = "/sys/block";

// A device belongs to whoever connected it: the kernel keeps the identifier that came with the
// connection and shows it in /sys/block/nbdN/backend (Linux 5.14). The socket's path is ours. So a
// device is found by what is behind it, never by a number that was written down.
//
// The kernel chooses the device, so two connections never share one. When the server ends, requests
// wait in the kernel for another connection, a day at most.

// True if the kernel's NBD client answers here; false without the module, and outside of the
// initial network namespace.
bool HasNbdDevices();

// The number N of /dev/nbdN whose server is the one at the Unix socket `path`.
std::optional<uint32_t> FindNbdDevice(const std::string& path);

// Connects the server at `path` to a device that the kernel chooses, and returns its number.
// Errors: UNAVAILABLE without the server; FAILED_PRECONDITION if the kernel refuses, or can't tell
//         whose a device is.
absl::StatusOr<uint32_t> ConnectNbdDevice(const std::string& path, bool read_only);

// Gives the device a new connection to the server at `path`, for one that has broken.
// Errors: as above; the device must have been connected with the same path.
absl::Status ReconnectNbdDevice(uint32_t number, const std::string& path);

// Requests that wait fail, and the device is free afterwards.
absl::Status DisconnectNbdDevice(uint32_t number);

}  // namespace cbt::driver

#endif  // CBT_DRIVER_HOST_NBD_DEVICE_H_

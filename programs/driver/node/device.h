// Block devices of this node, and the proof that one shows a given volume.
#ifndef CBT_PROGRAMS_DRIVER_NODE_DEVICE_H_
#define CBT_PROGRAMS_DRIVER_NODE_DEVICE_H_

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace cbt::driver {

// A device that was proven to be a volume's after it had been opened. It is held open: while the
// object lives, the kernel gives its number to nothing else.
class AttachedDevice {
 public:
  // Opens the block device at `path`; proves nothing. Errors: as FileError(); UNAVAILABLE if it is
  // no block device.
  static absl::StatusOr<AttachedDevice> Open(const std::string& path);

  const std::string& path() const noexcept { return path_; }
  dev_t number() const noexcept { return number_; }

  // Returns once everything written to the device is in the volume. Not what a file system on it
  // holds back.
  absl::Status Flush() const;
  // Bytes. Errors: as FileError().
  absl::StatusOr<uint64_t> Size() const;
  // Lets a loop device have all of its file; nothing for other devices. Errors: as FileError().
  absl::Status Grow() const;
  // Discards everything on the device. Errors: as FileError(), also if it can't be discarded.
  absl::Status Discard() const;
  // A loop device that was detached while others had it open goes with the last of them, and its
  // number to the next volume. From here on it stays until it is detached again. Nothing for other
  // devices. Errors: as FileError(), also if it has gone.
  absl::Status Keep() const;
  // True if a file system on it is mounted, in any namespace, or another program uses it alone.
  bool IsUsedAlone() const;

 private:
  AttachedDevice(std::string path, OwnedDescriptor file, dev_t number)
      : path_(std::move(path)), file_(std::move(file)), number_(number) {}

  std::string path_;
  OwnedDescriptor file_;
  dev_t number_;
};

// Devices of the kernel's NBD client. "/dev/nbd3" is a volume's if what is behind it proves so: the
// identifier that the kernel keeps of the connection is the path of the volume's socket, or, for a
// connection without one, the process that holds it is an nbd-client whose command line has both
// the socket and the device. An earlier owner of the device proves nothing: after a restart, numbers
// go to others.
bool IsNbdDeviceOf(const std::string& device, const std::string& socket);
std::vector<std::string> NbdDevicesOf(const std::string& socket);
// Devices without a connection, in the order of their numbers.
std::vector<std::string> FreeNbdDevices();

// Connects a device to the socket and proves that it is the one: `preferred` if it is free,
// otherwise another. Choice, connection and proof are one step for this process; a device that
// another one was faster to connect is not touched. Returns nothing if no device is free, or this
// node can't prove whose one is: it then has none connected. Errors: as CallProgram().
absl::StatusOr<std::string> ConnectNbd(const std::string& socket, const std::string& preferred,
                                       bool read_only);

// A loop device is the file's if its backing file is the very file at `file`, by device and inode.
// If that can't be looked at, because its FUSE server is gone (ENOTCONN), by the path: such a
// device fails every request, and is only there to be detached.
bool IsLoopDeviceOf(const std::string& device, const std::string& file);
std::vector<std::string> LoopDevicesOf(const std::string& file);

// True for a number that no device has, or whose device leads nowhere any more.
bool IsDeviceGone(dev_t number);

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_NODE_DEVICE_H_

#include "programs/driver/node/device.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file_io.h"
#include "programs/driver/system/process.h"
#include "programs/driver/system/program.h"

namespace cbt::driver {
namespace {

constexpr char kBlockDevices[] = "/sys/block";
// From the end of nbd-client until its daemon has handed the connection to the kernel.
constexpr std::chrono::seconds kConnectTime{10};

std::string NameOf(const std::string& device) { return device.substr(device.rfind('/') + 1); }

std::string Attribute(const std::string& device, const std::string& name) {
  return FirstLine(absl::StrCat(kBlockDevices, "/", NameOf(device), "/", name));
}

// What begins with `prefix` and goes on with a number, by number: "nbd3", but not its partitions.
std::vector<std::string> DevicesNamed(std::string_view prefix) {
  std::map<int, std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kBlockDevices, error)) {
    const std::string name = entry.path().filename();
    int number = 0;
    if (name.starts_with(prefix) && absl::SimpleAtoi(name.substr(prefix.size()), &number)) {
      found[number] = "/dev/" + name;
    }
  }
  std::vector<std::string> devices;
  devices.reserve(found.size());
  for (auto& [number, device] : found) devices.push_back(std::move(device));
  return devices;
}

// The process that connected it; nothing if no connection is alive. "0" is of one that has ended
// while somebody has the device open.
std::optional<pid_t> ConnectedBy(const std::string& device) {
  pid_t pid = 0;
  if (!absl::SimpleAtoi(Attribute(device, "pid"), &pid) || pid <= 0) return std::nullopt;
  return pid;
}

bool IsFree(const std::string& device) {
  return Attribute(device, "pid").empty() && Attribute(device, "size") == "0";
}

bool IsClientOf(pid_t pid, const std::string& device, const std::string& socket) {
  const std::vector<std::string> command = CommandOf(pid);
  const auto has = [&command](const std::string& word) {
    return std::find(command.begin(), command.end(), word) != command.end();
  };
  return !command.empty() && NameOf(command.front()) == "nbd-client" && has(socket) && has(device);
}

// nbd-client can give the kernel an identifier; those before 3.27 can't.
bool KnowsIdentifiers() {
  const absl::StatusOr<ProgramResult> usage = RunProgram({"nbd-client"});
  return usage.ok() && usage->output.find("-i ident") != std::string::npos;
}

// Where the backing file of a loop device is, as the kernel sees it.
struct BackingFile {
  dev_t device;
  uint64_t inode;

  friend bool operator==(const BackingFile&, const BackingFile&) = default;
};

std::optional<BackingFile> BackingFileOf(const std::string& loop) {
  const OwnedDescriptor file(OpenFile(loop, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  loop_info64 info = {};
  if (!file.has_value() || ::ioctl(file.number(), LOOP_GET_STATUS64, &info) != 0) {
    return std::nullopt;
  }
  return BackingFile{.device = static_cast<dev_t>(info.lo_device), .inode = info.lo_inode};
}

}  // namespace

absl::StatusOr<AttachedDevice> AttachedDevice::Open(const std::string& path) {
  OwnedDescriptor file(OpenFile(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (!file.has_value() || ::fstat(file.number(), &status) != 0) return FileError(path, errno);
  if (!S_ISBLK(status.st_mode)) return absl::UnavailableError(path + ": is no block device");
  return AttachedDevice(path, std::move(file), status.st_rdev);
}

absl::Status AttachedDevice::Flush() const {
  return ::fsync(file_.number()) == 0 ? absl::OkStatus() : FileError(path_, errno);
}

absl::StatusOr<uint64_t> AttachedDevice::Size() const {
  uint64_t bytes = 0;
  if (::ioctl(file_.number(), BLKGETSIZE64, &bytes) != 0) return FileError(path_, errno);
  return bytes;
}

absl::Status AttachedDevice::Grow() const {
  if (!path_.starts_with("/dev/loop")) return absl::OkStatus();
  return ::ioctl(file_.number(), LOOP_SET_CAPACITY, 0) == 0 ? absl::OkStatus()
                                                            : FileError(path_, errno);
}

absl::Status AttachedDevice::Discard() const {
  // file_ holds the number, so the path still leads to this device.
  const OwnedDescriptor writable(OpenFile(path_, O_RDWR | O_CLOEXEC | O_NONBLOCK));
  std::array<uint64_t, 2> range = {0, 0};  // offset and length, bytes
  if (!writable.has_value() || ::ioctl(writable.number(), BLKGETSIZE64, &range[1]) != 0 ||
      ::ioctl(writable.number(), BLKDISCARD, range.data()) != 0) {
    return FileError(path_, errno);
  }
  return absl::OkStatus();
}

absl::Status AttachedDevice::Keep() const {
  if (!NameOf(path_).starts_with("loop")) return absl::OkStatus();
  loop_info64 info = {};
  if (::ioctl(file_.number(), LOOP_GET_STATUS64, &info) != 0) return FileError(path_, errno);
  if ((info.lo_flags & LO_FLAGS_AUTOCLEAR) == 0) return absl::OkStatus();
  info.lo_flags &= ~uint32_t{LO_FLAGS_AUTOCLEAR};
  if (::ioctl(file_.number(), LOOP_SET_STATUS64, &info) != 0) return FileError(path_, errno);
  return absl::OkStatus();
}

bool AttachedDevice::IsUsedAlone() const {
  const OwnedDescriptor alone(OpenFile(path_, O_RDONLY | O_EXCL | O_CLOEXEC | O_NONBLOCK));
  return !alone.has_value() && errno == EBUSY;
}

bool IsNbdDeviceOf(const std::string& device, const std::string& socket) {
  const std::optional<pid_t> pid = ConnectedBy(device);
  if (!pid.has_value()) return false;
  const std::string backend = Attribute(device, "backend");
  return backend.empty() ? IsClientOf(*pid, device, socket) : backend == socket;
}

std::vector<std::string> NbdDevicesOf(const std::string& socket) {
  std::vector<std::string> devices = DevicesNamed("nbd");
  std::erase_if(devices, [&](const std::string& one) { return !IsNbdDeviceOf(one, socket); });
  return devices;
}

std::vector<std::string> FreeNbdDevices() {
  std::vector<std::string> devices = DevicesNamed("nbd");
  std::erase_if(devices, [](const std::string& one) { return !IsFree(one); });
  return devices;
}

absl::StatusOr<std::string> ConnectNbd(const std::string& socket, const std::string& preferred,
                                       bool read_only) {
  static std::mutex choosing;
  const std::lock_guard lock(choosing);
  std::vector<std::string> free = FreeNbdDevices();
  std::stable_partition(free.begin(), free.end(),
                        [&](const std::string& one) { return one == preferred; });
  const bool named = KnowsIdentifiers();
  absl::Status failed;
  for (const std::string& device : free) {
    // Connected meanwhile. Without netlink, nbd-client would even set its size.
    if (!IsFree(device)) continue;
    std::vector<std::string> command = {"nbd-client", "-unix", socket, device};
    // A connection over netlink leaves no process.
    command.insert(command.end(), named ? std::initializer_list<std::string>{"-i", socket}
                                        : std::initializer_list<std::string>{"-nonetlink"});
    if (read_only) command.emplace_back("-readonly");
    const absl::StatusOr<std::string> connected = CallProgram(command);
    if (connected.ok()) {
      WaitFor([&] { return ConnectedBy(device).has_value(); }, kConnectTime);
    } else {
      failed = connected.status();
    }
    if (IsNbdDeviceOf(device, socket)) return device;
    if (!connected.ok()) continue;  // another process was faster, or the kernel refuses this one
    // nbd-client says that this one is ours, and nothing else does: a kernel before 5.14, or a
    // process that can't be looked up in this namespace.
    const absl::StatusOr<std::string> given_back = CallProgram({"nbd-client", "-d", device});
    return given_back.ok() ? absl::StatusOr<std::string>(std::string()) : given_back.status();
  }
  if (!failed.ok()) return failed;
  return std::string();
}

bool IsLoopDeviceOf(const std::string& device, const std::string& file) {
  const std::string shown = Attribute(device, "loop/backing_file");
  if (shown.empty()) return false;
  const std::string backing(absl::StripSuffix(shown, " (deleted)"));
  // The path depends on the namespace, its last part does not: other devices are left alone.
  if (NameOf(backing) != NameOf(file)) return false;
  // What the kernel knows: its server may be ending, and device and inode never change.
  struct statx wanted = {};
  if (::statx(AT_FDCWD, file.c_str(), AT_STATX_DONT_SYNC, STATX_INO, &wanted) == 0) {
    return BackingFileOf(device) ==
           BackingFile{.device = makedev(wanted.stx_dev_major, wanted.stx_dev_minor),
                       .inode = wanted.stx_ino};
  }
  // Without a mount there is no such file, and the path of another one proves nothing.
  if (errno != ENOTCONN && errno != EIO) return false;
  // The directory of the file can't be looked at either.
  std::error_code error;
  const std::filesystem::path path(file);
  return backing == std::filesystem::weakly_canonical(path.parent_path().parent_path(), error) /
                        path.parent_path().filename() / path.filename();
}

std::vector<std::string> LoopDevicesOf(const std::string& file) {
  std::vector<std::string> devices = DevicesNamed("loop");
  std::erase_if(devices, [&](const std::string& one) { return !IsLoopDeviceOf(one, file); });
  return devices;
}

bool IsDeviceGone(dev_t number) {
  if (major(number) == 0) return false;  // of a file system without a device
  const std::string device = absl::StrCat("/sys/dev/block/", major(number), ":", minor(number));
  const std::string size = FirstLine(device + "/size");
  // The second is a connection of NBD that has ended while the device is open.
  return size.empty() || size == "0" || FirstLine(device + "/pid") == "0";
}

}  // namespace cbt::driver

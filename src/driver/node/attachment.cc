#include "driver/node/attachment.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "driver/system/mounts.h"
#include "driver/system/program.h"
#include "volume/control.h"

namespace cbt::driver {
namespace {

constexpr std::chrono::milliseconds kStatePoll{20};
constexpr std::chrono::seconds kStartTime{30};
constexpr std::chrono::seconds kStopTime{30};
constexpr char kBlockDevices[] = "/sys/block";

// False after the time.
template <typename Condition>
bool WaitFor(Condition condition, std::chrono::seconds time) {
  const auto latest = std::chrono::steady_clock::now() + time;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > latest) return false;
    std::this_thread::sleep_for(kStatePoll);
  }
  return true;
}

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string FirstLine(const std::string& path) {
  std::string text = ReadWhole(path);
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

// The loop device whose backing file has this path.
std::optional<std::string> FindLoop(const std::string& file) {
  std::error_code error;
  const std::string real = std::filesystem::weakly_canonical(
                               std::filesystem::path(file).parent_path().parent_path(), error) /
                           "fuse/disk";
  for (const auto& entry : std::filesystem::directory_iterator(kBlockDevices, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("loop")) continue;
    const std::string backing = FirstLine(entry.path() / "loop/backing_file");
    if (backing == real || backing == real + " (deleted)") return "/dev/" + name;
  }
  return std::nullopt;
}

// A running server whose command line names the socket.
bool Serves(pid_t pid, const std::string& socket) {
  const std::string command = ReadWhole(absl::StrCat("/proc/", pid, "/cmdline"));
  return command.find(socket) != std::string::npos;
}

bool IsListening(const std::string& control) {
  return volume::ControlClient::Connect(control).ok();
}

bool IsConnected(const std::string& device) {
  return !FirstLine(std::string(kBlockDevices) + device.substr(device.rfind('/')) + "/pid").empty();
}

absl::Status Sync(const std::string& path, int flags, int (*sync)(int)) {
  const OwnedDescriptor file(OpenFile(path, flags | O_CLOEXEC));
  if (!file.has_value() || sync(file.number()) != 0) return FileError(path, errno);
  return absl::OkStatus();
}

}  // namespace

absl::Status FlushDevice(const std::string& device) { return Sync(device, O_RDONLY, ::fsync); }

absl::Status FlushFileSystem(const std::string& path) {
  return Sync(path, O_RDONLY | O_DIRECTORY, ::syncfs);
}

absl::StatusOr<std::string> Attachment::Choose() {
  if (!IsInstalled("nbdkit")) {
    return absl::FailedPreconditionError("nbdkit is not installed on this node");
  }
  std::vector<std::string> missing;
  if (::access("/dev/nbd0", R_OK | W_OK) != 0) {
    missing.emplace_back("/dev/nbd0 (the kernel module nbd)");
  } else if (!IsInstalled("nbd-client")) {
    missing.emplace_back("nbd-client");
  } else {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(kBlockDevices, error)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with("nbd") || name.find('p') != std::string::npos) continue;
      if (!IsConnected("/dev/" + name) && FirstLine(entry.path() / "size") == "0") {
        return "/dev/" + name;
      }
    }
    missing.emplace_back("a free NBD device");
  }
  const size_t of_nbd = missing.size();
  if (::access("/dev/fuse", R_OK | W_OK) != 0) missing.emplace_back("/dev/fuse");
  if (!IsInstalled("nbdfuse")) missing.emplace_back("nbdfuse");
  if (::access("/dev/loop-control", R_OK | W_OK) != 0) missing.emplace_back("/dev/loop-control");
  if (!IsInstalled("losetup")) missing.emplace_back("losetup");
  if (missing.size() == of_nbd) return std::string();
  return absl::FailedPreconditionError(
      "this node can attach no volume: neither the kernel's NBD client nor nbdfuse with a loop "
      "device works without " +
      absl::StrJoin(missing, ", "));
}

absl::Status Attachment::Serve(const std::string& id) const {
  const std::string control = catalog_.ControlSocket(id);
  if (IsListening(control)) return absl::OkStatus();
  // A killed one leaves its files.
  ::unlink(catalog_.NbdSocket(id).c_str());
  ::unlink(PidFile(id).c_str());
  const absl::StatusOr<std::string> started =
      CallProgram({"nbdkit", "--unix", catalog_.NbdSocket(id), "--pidfile", PidFile(id), plugin_,
                   "folder=" + catalog_.VolumeFolder(id), "control=" + control});
  if (!started.ok()) return started.status();
  if (!WaitFor([&] { return IsListening(control); }, kStartTime)) {
    return absl::UnavailableError("nbdkit has started, but does not answer at " + control);
  }
  return absl::OkStatus();
}

absl::Status Attachment::StopServing(const std::string& id) const {
  const std::string socket = catalog_.NbdSocket(id);
  pid_t pid = 0;
  if (absl::SimpleAtoi(FirstLine(PidFile(id)), &pid) && pid > 1 && Serves(pid, socket)) {
    if (::kill(pid, SIGTERM) != 0 && errno != ESRCH) return FileError(PidFile(id), errno);
    if (!WaitFor([&] { return !Serves(pid, socket); }, kStopTime)) {
      return absl::UnavailableError(absl::StrCat("nbdkit (process ", pid, ") does not end"));
    }
  } else if (IsListening(catalog_.ControlSocket(id))) {
    return absl::FailedPreconditionError(
        "the volume is served by a process that is not the driver's");
  }
  for (const std::string& file : {socket, catalog_.ControlSocket(id), PidFile(id)}) {
    if (::unlink(file.c_str()) != 0 && errno != ENOENT) return FileError(file, errno);
  }
  return absl::OkStatus();
}

absl::Status Attachment::MountFuse(const std::string& id) const {
  const std::string folder = FuseFolder(id);
  if (const absl::StatusOr<bool> mounted = IsMounted(folder); !mounted.ok()) {
    return mounted.status();
  } else if (*mounted) {
    struct stat file = {};
    if (::stat(FuseFile(id).c_str(), &file) == 0) return absl::OkStatus();
    // Its server is gone.
    if (absl::Status unmounted = UnmountLazily(folder); !unmounted.ok()) return unmounted;
  }
  if (absl::Status made = MakeFolder(folder, /*sync=*/false); !made.ok()) return made;
  const absl::StatusOr<std::string> started =
      CallProgram({"setsid", "--fork", "nbdfuse", FuseFile(id), "--unix", catalog_.NbdSocket(id)});
  if (!started.ok()) return started.status();
  const bool shown = WaitFor(
      [&] {
        struct stat file = {};
        const absl::StatusOr<bool> mounted = IsMounted(folder);
        return mounted.ok() && *mounted && ::stat(FuseFile(id).c_str(), &file) == 0;
      },
      kStartTime);
  return shown ? absl::OkStatus()
               : absl::UnavailableError("nbdfuse does not show the volume at " + FuseFile(id));
}

absl::StatusOr<std::string> Attachment::Attach(const std::string& id,
                                               const NodeRecord& node) const {
  const std::string& nbd = node.nbd_device;
  // A device above a server that has died fails every request, and is made anew.
  if (!IsListening(catalog_.ControlSocket(id))) {
    if (absl::Status detached = Detach(id, node); !detached.ok()) return detached;
  }
  if (absl::Status serving = Serve(id); !serving.ok()) return serving;
  if (!nbd.empty()) {
    if (!IsConnected(nbd)) {
      std::vector<std::string> command = {"nbd-client", "-unix", catalog_.NbdSocket(id), nbd};
      if (node.read_only) command.emplace_back("-readonly");
      const absl::StatusOr<std::string> connected = CallProgram(command);
      if (!connected.ok()) return connected.status();
    }
    return nbd;
  }
  if (absl::Status mounted = MountFuse(id); !mounted.ok()) return mounted;
  if (const std::optional<std::string> loop = FindLoop(FuseFile(id)); loop.has_value()) {
    return *loop;
  }
  std::vector<std::string> command = {"losetup", "--find", "--show", FuseFile(id)};
  if (node.read_only) command.emplace_back("--read-only");
  return CallProgram(command);
}

absl::StatusOr<std::string> Attachment::DeviceOf(const std::string& id,
                                                 const NodeRecord& node) const {
  if (!node.nbd_device.empty()) {
    if (IsConnected(node.nbd_device)) return node.nbd_device;
  } else if (const std::optional<std::string> loop = FindLoop(FuseFile(id)); loop.has_value()) {
    return *loop;
  }
  return absl::NotFoundError("the volume is not attached");
}

absl::Status Attachment::Detach(const std::string& id, const NodeRecord& node) const {
  const bool served = IsListening(catalog_.ControlSocket(id));
  if (const absl::StatusOr<std::string> device = DeviceOf(id, node); device.ok()) {
    // Without a server nothing can be saved any more, and the caller has seen errors.
    if (absl::Status flushed = FlushDevice(*device); !flushed.ok() && served) return flushed;
    const absl::StatusOr<std::string> detached = node.nbd_device.empty()
                                                     ? CallProgram({"losetup", "--detach", *device})
                                                     : CallProgram({"nbd-client", "-d", *device});
    if (!detached.ok()) return detached.status();
    if (!WaitFor([&] { return !DeviceOf(id, node).ok(); }, kStopTime)) {
      return absl::FailedPreconditionError(*device + ": is in use");
    }
  }
  if (node.nbd_device.empty()) {
    const absl::Status unmounted = served ? Unmount(FuseFolder(id)) : UnmountLazily(FuseFolder(id));
    if (!unmounted.ok()) return unmounted;
    if (::rmdir(FuseFolder(id).c_str()) != 0 && errno != ENOENT) {
      return FileError(FuseFolder(id), errno);
    }
  }
  return StopServing(id);
}

}  // namespace cbt::driver

#include "driver/node/attachment.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file_io.h"
#include "driver/node/mounts.h"
#include "driver/node/program.h"
#include "driver/node/system.h"

namespace cbt::driver {
namespace {

constexpr std::chrono::seconds kStartTime{30};
constexpr std::chrono::seconds kStopTime{30};

// An nbdkit that serves exactly this socket; other programs may name it too.
bool Serves(pid_t pid, const std::string& socket) {
  const std::vector<std::string> command = CommandOf(pid);
  if (command.empty()) return false;
  const std::string& program = command.front();
  return program.substr(program.rfind('/') + 1) == "nbdkit" &&
         std::find(command.begin(), command.end(), socket) != command.end();
}

bool IsFile(const std::string& path) {
  struct stat file = {};
  return ::stat(path.c_str(), &file) == 0;
}

}  // namespace

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
    if (std::vector<std::string> free = FreeNbdDevices(); !free.empty()) return free.front();
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
  const absl::StatusOr<bool> served = IsServed(id);
  if (!served.ok()) return served.status();
  if (*served) return absl::OkStatus();
  // A killed one leaves its files.
  ::unlink(catalog_.NbdSocket(id).c_str());
  ::unlink(PidFile(id).c_str());
  const absl::StatusOr<std::string> started =
      CallProgram({"nbdkit", "--unix", catalog_.NbdSocket(id), "--pidfile", PidFile(id), plugin_,
                   "folder=" + catalog_.VolumeFolder(id), "control=" + control});
  if (!started.ok()) return started.status();
  const auto answers = [&] { return IsListening(control).value_or(false); };
  if (!WaitFor(answers, kStartTime)) {
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
  } else if (const absl::StatusOr<bool> served = IsServed(id); !served.ok()) {
    return served.status();
  } else if (*served) {
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
    return absl::OkStatus();  // and its server lives, see IsAlive()
  }
  if (absl::Status made = MakeFolder(folder, /*sync=*/false); !made.ok()) return made;
  const absl::StatusOr<std::string> started =
      CallProgram({"setsid", "--fork", "nbdfuse", FuseFile(id), "--unix", catalog_.NbdSocket(id)});
  if (!started.ok()) return started.status();
  const bool shown = WaitFor(
      [&] {
        const absl::StatusOr<bool> mounted = IsMounted(folder);
        return mounted.ok() && *mounted && IsFile(FuseFile(id));
      },
      kStartTime);
  return shown ? absl::OkStatus()
               : absl::UnavailableError("nbdfuse does not show the volume at " + FuseFile(id));
}

std::vector<std::string> Attachment::Find(const std::string& id) const {
  std::vector<std::string> devices = NbdDevicesOf(catalog_.NbdSocket(id));
  const std::vector<std::string> loops = LoopDevicesOf(FuseFile(id));
  devices.insert(devices.end(), loops.begin(), loops.end());
  return devices;
}

bool Attachment::IsOurs(const std::string& id, const std::string& device) const {
  return IsNbdDeviceOf(device, catalog_.NbdSocket(id)) || IsLoopDeviceOf(device, FuseFile(id));
}

absl::StatusOr<AttachedDevice> Attachment::Hold(const std::string& id,
                                                const std::string& path) const {
  absl::StatusOr<AttachedDevice> device = AttachedDevice::Open(path);
  if (!device.ok()) return device;
  // It may have become another's before it was open. From here on it can't.
  if (!IsOurs(id, path)) {
    return absl::UnavailableError(path + ": is not the volume's any more; call again");
  }
  return device;
}

absl::StatusOr<bool> Attachment::IsServed(const std::string& id) const {
  return IsListening(catalog_.ControlSocket(id));
}

absl::StatusOr<bool> Attachment::IsAlive(const std::string& id) const {
  const absl::StatusOr<bool> served = IsServed(id);
  if (!served.ok() || !*served) return served;
  const absl::StatusOr<bool> mounted = IsMounted(FuseFolder(id));
  if (!mounted.ok()) return mounted.status();
  return !*mounted || IsFile(FuseFile(id));
}

absl::StatusOr<AttachedDevice> Attachment::Attach(const std::string& id, NodeRecord& node) const {
  // A device above a server that has died fails every request, and is made anew.
  const absl::StatusOr<bool> alive = IsAlive(id);
  if (!alive.ok()) return alive.status();
  if (!*alive) {
    if (absl::Status detached = Detach(id); !detached.ok()) return detached;
  }
  if (absl::Status serving = Serve(id); !serving.ok()) return serving;
  if (absl::StatusOr<AttachedDevice> found = DeviceOf(id); !absl::IsNotFound(found.status())) {
    return found;
  }
  if (!node.nbd_device.empty()) {
    absl::StatusOr<std::string> nbd =
        ConnectNbd(catalog_.NbdSocket(id), node.nbd_device, node.read_only);
    if (!nbd.ok()) return nbd.status();
    node.nbd_device = *nbd;
    if (!nbd->empty()) return Hold(id, *nbd);
  }
  if (absl::Status mounted = MountFuse(id); !mounted.ok()) return mounted;
  std::vector<std::string> command = {"losetup", "--find", "--show", FuseFile(id)};
  if (node.read_only) command.emplace_back("--read-only");
  const absl::StatusOr<std::string> loop = CallProgram(command);
  if (!loop.ok()) return loop.status();
  return Hold(id, *loop);
}

absl::StatusOr<std::vector<AttachedDevice>> Attachment::DevicesOf(const std::string& id) const {
  std::vector<AttachedDevice> devices;
  for (const std::string& path : Find(id)) {
    absl::StatusOr<AttachedDevice> device = Hold(id, path);
    if (!device.ok()) return device.status();
    devices.push_back(*std::move(device));
  }
  return devices;
}

absl::StatusOr<AttachedDevice> Attachment::DeviceOf(const std::string& id) const {
  absl::StatusOr<std::vector<AttachedDevice>> devices = DevicesOf(id);
  if (!devices.ok()) return devices.status();
  if (devices->empty()) {
    return absl::NotFoundError(
        "the volume is not attached: no device of this node is provably its own; stage it again");
  }
  // Each would hold back writes that the others don't see.
  if (devices->size() > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("the volume is attached more than once, as ", devices->front().path(), " and ",
                     devices->back().path(), "; unstage it, which detaches them all"));
  }
  return std::move(devices->front());
}

absl::Status Attachment::DetachDevice(const std::string& id, const std::string& path,
                                      bool alive) const {
  const bool is_loop = path.starts_with("/dev/loop");
  // Without a server nothing can be saved any more, and the caller has seen errors.
  if (alive) {
    const absl::StatusOr<AttachedDevice> device = Hold(id, path);
    if (!device.ok()) return device.status();
    // A loop device stays until its last user is gone, one of NBD fails under its users.
    if (!is_loop && device->IsUsedAlone()) {
      return absl::FailedPreconditionError(path + ": is in use");
    }
    if (absl::Status flushed = device->Flush(); !flushed.ok()) return flushed;
  }
  const absl::StatusOr<std::string> detached = is_loop ? CallProgram({"losetup", "--detach", path})
                                                       : CallProgram({"nbd-client", "-d", path});
  if (!detached.ok()) return detached.status();
  if (alive && !WaitFor([&] { return !IsOurs(id, path); }, kStopTime)) {
    return absl::FailedPreconditionError(path + ": is in use");
  }
  return absl::OkStatus();
}

absl::Status Attachment::Detach(const std::string& id) const {
  const absl::StatusOr<bool> alive = IsAlive(id);
  if (!alive.ok()) return alive.status();
  for (const std::string& device : Find(id)) {
    if (absl::Status detached = DetachDevice(id, device, *alive); !detached.ok()) return detached;
  }
  const absl::Status unmounted = *alive ? Unmount(FuseFolder(id)) : UnmountLazily(FuseFolder(id));
  if (!unmounted.ok()) return unmounted;
  if (::rmdir(FuseFolder(id).c_str()) != 0 && errno != ENOENT) {
    return FileError(FuseFolder(id), errno);
  }
  return StopServing(id);
}

}  // namespace cbt::driver

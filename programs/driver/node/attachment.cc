#include "programs/driver/node/attachment.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file_io.h"
#include "programs/driver/system/mounts.h"
#include "programs/driver/system/process.h"
#include "programs/driver/system/program.h"

namespace cbt::driver {
namespace {

constexpr std::chrono::seconds kStopTime{30};

absl::Status NotKnown() {
  return absl::UnavailableError(
      "the volume host has not said yet whether the volume's device still works; call again");
}

}  // namespace

absl::StatusOr<std::string> Attachment::Choose(DeviceKind kind) {
  std::vector<std::string> missing;
  const auto need = [&missing](const char* program) {
    if (!IsInstalled(program)) missing.emplace_back(program);
  };
  need("nbdkit");
  if (kind == DeviceKind::kNbd) {
    need("nbd-client");
    if (std::vector<std::string> free = FreeNbdDevices(); !free.empty() && missing.empty()) {
      return free.front();
    } else if (free.empty()) {
      missing.emplace_back("a free NBD device (the kernel module nbd)");
    }
  } else {
    for (const char* const device : {"/dev/fuse", "/dev/loop-control"}) {
      if (::access(device, R_OK | W_OK) != 0) missing.emplace_back(device);
    }
    need("losetup");
    if (missing.empty()) return std::string();
  }
  return absl::FailedPreconditionError("this node can attach no volume without " +
                                       absl::StrJoin(missing, ", "));
}

std::vector<std::string> Attachment::Find(const std::string& id) const {
  std::vector<std::string> devices = NbdDevicesOf(paths_.NbdSocket(id));
  for (const std::string& file : {paths_.FuseFile(id), paths_.ViewFile(id)}) {
    const std::vector<std::string> loops = LoopDevicesOf(file);
    devices.insert(devices.end(), loops.begin(), loops.end());
  }
  return devices;
}

bool Attachment::IsView(const std::string& id) const {
  return ::access(paths_.ViewFile(id).c_str(), F_OK) == 0;
}

bool Attachment::IsOurs(const std::string& id, const std::string& device) const {
  return IsNbdDeviceOf(device, paths_.NbdSocket(id)) ||
         IsLoopDeviceOf(device, paths_.FuseFile(id)) || IsLoopDeviceOf(device, paths_.ViewFile(id));
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
  return IsListening(paths_.ControlSocket(id));
}

std::optional<VolumeHealth> Attachment::SettledHealth(const std::string& id,
                                                      const NodeRecord& node) const {
  const std::optional<VolumeHealth> known = host_.health(id);
  if (known.has_value() && known->state == VolumeHealth::State::kUnknown) {
    if (!host_.WaitUntilConnected()) return known;
    // The thread that asks for all volumes may wait for this call.
    const absl::Status served =
        host_.Serve({.volume = id, .file = true, .read_only = node.read_only, .again = true});
    if (absl::IsUnavailable(served)) return known;
  }
  return host_.SettledHealth(id);
}

absl::StatusOr<bool> Attachment::IsAlive(const std::string& id, const NodeRecord& node) const {
  if (IsView(id)) return true;
  const absl::StatusOr<bool> mounted = IsMounted(paths_.FuseDirectory(id));
  if (!mounted.ok()) return mounted.status();
  if (!*mounted) return IsServed(id);
  SettledHealth(id, node);
  const HostClient::File file = host_.file(id);
  // What is taken for dead is detached.
  if (file == HostClient::File::kUnknown) return NotKnown();
  return file == HostClient::File::kShown;
}

absl::Status Attachment::CheckServer(const std::string& id, const NodeRecord& node) const {
  const absl::StatusOr<bool> mounted = IsMounted(paths_.FuseDirectory(id));
  if (!mounted.ok()) return mounted.status();
  if (!*mounted) return absl::OkStatus();
  const std::optional<VolumeHealth> health = SettledHealth(id, node);
  const HostClient::File file = host_.file(id);
  if (file == HostClient::File::kUnknown) return NotKnown();
  if (file == HostClient::File::kGone || !health.has_value() || health->serving()) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("the volume's server does not run, and what was written last waits "
                   "for it: ",
                   health->error));
}

absl::StatusOr<bool> Attachment::IsAttached(const std::string& id) const {
  const absl::StatusOr<bool> mounted = IsMounted(paths_.FuseDirectory(id));
  return !mounted.ok() || *mounted ? mounted : IsServed(id);
}

absl::Status Attachment::ServeAgain(const std::string& id, const NodeRecord& node) const {
  const absl::StatusOr<bool> attached = IsAttached(id);
  if (!attached.ok()) return attached.status();
  if (!*attached) {
    host_.Unexpect(id);
    return absl::OkStatus();
  }
  const absl::StatusOr<bool> mounted = IsMounted(paths_.FuseDirectory(id));
  if (!mounted.ok()) return mounted.status();
  return host_.Serve({.volume = id, .file = *mounted, .read_only = node.read_only, .again = true});
}

absl::StatusOr<AttachedDevice> Attachment::Attach(const std::string& id, NodeRecord& node) const {
  if (IsView(id)) {
    absl::StatusOr<AttachedDevice> found = DeviceToUse(id);
    if (!absl::IsNotFound(found.status())) return found;
    return AttachFile(id, paths_.ViewFile(id), /*read_only=*/true);
  }
  // A device above a server that has died fails every request, and is made anew.
  const absl::StatusOr<bool> alive = IsAlive(id, node);
  if (!alive.ok()) return alive.status();
  if (!*alive) {
    if (absl::Status detached = Detach(id, node); !detached.ok()) return detached;
  }
  const bool file = node.nbd_device.empty();
  if (absl::Status served = host_.Serve({.volume = id, .file = file, .read_only = node.read_only});
      !served.ok()) {
    return served;
  }
  if (absl::StatusOr<AttachedDevice> found = DeviceToUse(id); !absl::IsNotFound(found.status())) {
    return found;
  }
  if (!file) {
    absl::StatusOr<std::string> nbd =
        ConnectNbd(paths_.NbdSocket(id), node.nbd_device, node.read_only);
    if (!nbd.ok()) return nbd.status();
    node.nbd_device = *nbd;
    if (!nbd->empty()) return Hold(id, *nbd);
    if (absl::Status shown = host_.Serve({.volume = id, .file = true, .read_only = node.read_only});
        !shown.ok()) {
      return shown;
    }
  }
  return AttachFile(id, paths_.FuseFile(id), node.read_only);
}

absl::StatusOr<AttachedDevice> Attachment::AttachFile(const std::string& id,
                                                      const std::string& file,
                                                      bool read_only) const {
  std::vector<std::string> command = {"losetup", "--find", "--show", "--direct-io=on", file};
  if (read_only) command.emplace_back("--read-only");
  const absl::StatusOr<std::string> loop = CallProgram(command);
  if (!loop.ok()) return loop.status();
  return HoldToUse(id, *loop);
}

absl::StatusOr<AttachedDevice> Attachment::HoldToUse(const std::string& id,
                                                     const std::string& path) const {
  absl::StatusOr<AttachedDevice> device = Hold(id, path);
  if (!device.ok()) return device;
  if (absl::Status kept = device->Keep(); !kept.ok()) return kept;
  return device;
}

absl::StatusOr<AttachedDevice> Attachment::DeviceToUse(const std::string& id) const {
  absl::StatusOr<AttachedDevice> device = DeviceOf(id);
  if (!device.ok()) return device;
  if (absl::Status kept = device->Keep(); !kept.ok()) return kept;
  // It was proven while it was held open, and can't have gone since.
  return device;
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
  AttachedDevice only = std::move(devices->front());
  return only;
}

absl::Status Attachment::Grow(const std::string& id, uint64_t capacity) const {
  const absl::StatusOr<AttachedDevice> device = DeviceOf(id);
  if (!device.ok()) return device.status();
  absl::StatusOr<uint64_t> size = device->Size();
  if (!size.ok()) return size.status();
  if (*size >= capacity) return absl::OkStatus();
  if (absl::Status grown = host_.Grow(id, capacity); !grown.ok()) return grown;
  // The kernel's idea of the file's size is what the device gets.
  struct stat file = {};
  const std::string path = paths_.FuseFile(id);
  if (::stat(path.c_str(), &file) != 0) return FileError(path, errno);
  if (absl::Status grown = device->Grow(); !grown.ok()) return grown;
  size = device->Size();
  if (!size.ok()) return size.status();
  if (*size >= capacity) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(device->path(), ": can't grow while it is attached; unstage the volume"));
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
    // It stays attached, whatever its last user does: the volume may be staged again instead.
    HoldToUse(id, path).IgnoreError();
    return absl::FailedPreconditionError(path + ": is in use");
  }
  return absl::OkStatus();
}

absl::Status Attachment::Detach(const std::string& id, const NodeRecord& node) const {
  const absl::StatusOr<bool> alive = IsAlive(id, node);
  if (!alive.ok()) return alive.status();
  if (absl::Status server = CheckServer(id, node); !server.ok()) return server;
  for (const std::string& device : Find(id)) {
    if (absl::Status detached = DetachDevice(id, device, *alive); !detached.ok()) return detached;
  }
  return IsView(id) ? absl::OkStatus() : host_.Stop(id);
}

}  // namespace cbt::driver

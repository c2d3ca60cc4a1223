#include "programs/driver/system/mounts.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string_view>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/descriptor.h"
#include "base/file_io.h"

namespace cbt::driver {
namespace {

constexpr std::chrono::milliseconds kBusyPause{50};
constexpr int kTries = 100;  // 5 s

// A field of mountinfo: blanks and backslashes are octal there.
std::string Decode(std::string_view field) {
  std::string text;
  for (size_t i = 0; i < field.size(); ++i) {
    if (field[i] == '\\' && i + 3 < field.size()) {
      text += static_cast<char>((field[i + 1] - '0') * 64 + (field[i + 2] - '0') * 8 +
                                (field[i + 3] - '0'));
      i += 3;
    } else {
      text += field[i];
    }
  }
  return text;
}

// The path without links. One whose last part can't be looked at, because its server is gone, is
// resolved up to there.
std::string Resolve(const std::string& path) {
  const auto real = [](const std::string& name) {
    const std::unique_ptr<char, decltype(&std::free)> found(realpath(name.c_str(), nullptr),
                                                            &std::free);
    return found == nullptr ? std::string() : std::string(found.get());
  };
  if (std::string whole = real(path); !whole.empty()) return whole;
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash + 1 == path.size()) return path;
  const std::string directory = real(slash == 0 ? "/" : path.substr(0, slash));
  if (directory.empty()) return path;
  return (directory == "/" ? "" : directory) + path.substr(slash);
}

}  // namespace

absl::StatusOr<std::vector<Mount>> AllMounts() {
  std::ifstream file("/proc/self/mountinfo");
  std::vector<Mount> mounts;
  std::string line;
  while (std::getline(file, line)) {
    // ID PARENT MAJOR:MINOR ROOT MOUNT_POINT ...
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(' ', 5));
    if (fields.size() < 6) continue;
    const std::vector<std::string> numbers = absl::StrSplit(fields[2], ':');
    unsigned major = 0;
    unsigned minor = 0;
    if (numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &major) ||
        !absl::SimpleAtoi(numbers[1], &minor)) {
      return absl::UnavailableError("/proc/self/mountinfo: a line has no device");
    }
    mounts.push_back({.device = makedev(major, minor), .point = Decode(fields[4])});
  }
  if (mounts.empty() || file.bad()) {
    return absl::UnavailableError("/proc/self/mountinfo can't be read");
  }
  return mounts;
}

absl::StatusOr<std::optional<dev_t>> MountedAt(const std::string& path) {
  const absl::StatusOr<std::vector<Mount>> mounts = AllMounts();
  if (!mounts.ok()) return mounts.status();
  const std::string wanted = Resolve(path);
  // The last one covers the others.
  std::optional<dev_t> device;
  for (const Mount& mount : *mounts) {
    if (mount.point == wanted) device = mount.device;
  }
  return device;
}

absl::StatusOr<bool> IsMounted(const std::string& path) {
  const absl::StatusOr<std::optional<dev_t>> device = MountedAt(path);
  if (!device.ok()) return device.status();
  return device->has_value();
}

absl::StatusOr<bool> FlushFileSystemOf(dev_t device) {
  const absl::StatusOr<std::vector<Mount>> mounts = AllMounts();
  if (!mounts.ok()) return mounts.status();
  for (const Mount& mount : *mounts) {
    if (mount.device != device) continue;
    const OwnedDescriptor file(OpenFile(mount.point, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status = {};
    // Something else may be mounted over it.
    if (!file.has_value() || ::fstat(file.number(), &status) != 0 || status.st_dev != device) {
      continue;
    }
    if (::syncfs(file.number()) != 0) return FileError(mount.point, errno);
    return true;
  }
  return false;
}

absl::Status BindMount(const std::string& source, const std::string& target, bool read_only) {
  if (::mount(source.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    return FileError(target, errno);
  }
  if (read_only &&
      ::mount(nullptr, target.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
    const int error = errno;
    ::umount2(target.c_str(), MNT_DETACH);
    return FileError(target, error);
  }
  return absl::OkStatus();
}

absl::Status Unmount(const std::string& path) {
  for (int tries = 0; tries < kTries; ++tries) {
    const absl::StatusOr<bool> mounted = IsMounted(path);
    if (!mounted.ok()) return mounted.status();
    if (!*mounted) return absl::OkStatus();
    if (::umount2(path.c_str(), UMOUNT_NOFOLLOW) == 0) continue;
    if (errno != EBUSY) return FileError(path, errno);
    std::this_thread::sleep_for(kBusyPause);
  }
  return absl::FailedPreconditionError(absl::StrCat(path, ": is in use"));
}

absl::Status UnmountLazily(const std::string& path) {
  for (;;) {
    const absl::StatusOr<bool> mounted = IsMounted(path);
    if (!mounted.ok()) return mounted.status();
    if (!*mounted) return absl::OkStatus();
    if (::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0) return FileError(path, errno);
  }
}

}  // namespace cbt::driver

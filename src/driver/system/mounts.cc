#include "driver/system/mounts.h"

#include <sys/mount.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
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
  const std::string folder = real(slash == 0 ? "/" : path.substr(0, slash));
  if (folder.empty()) return path;
  return (folder == "/" ? "" : folder) + path.substr(slash);
}

}  // namespace

absl::StatusOr<bool> IsMounted(const std::string& path) {
  const std::string wanted = Resolve(path);
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line;
  while (std::getline(mounts, line)) {
    // ID PARENT MAJOR:MINOR ROOT MOUNT_POINT ...
    size_t at = 0;
    for (int field = 0; field < 4 && at != std::string::npos; ++field) at = line.find(' ', at + 1);
    if (at == std::string::npos) continue;
    const size_t end = line.find(' ', at + 1);
    if (Decode(std::string_view(line).substr(at + 1, end - at - 1)) == wanted) return true;
  }
  if (mounts.bad()) return absl::UnavailableError("/proc/self/mountinfo can't be read");
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

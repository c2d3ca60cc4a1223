#include "programs/cosi/node/credentials_mount.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/text.h"
#include "programs/driver/system/mounts.h"

namespace cbt::kube::cosi {
namespace {

// Enough for any Secret, which has 1 MiB at most.
constexpr char kSize[] = "size=4m,nr_inodes=2k";
constexpr unsigned long kFlags = MS_NOSUID | MS_NODEV | MS_NOEXEC;

absl::Status SystemError(const std::string& path, int error) {
  return absl::InternalError(absl::StrCat(path, ": ", ErrnoText(error)));
}

bool IsFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

absl::Status WriteFile(const std::string& path, std::optional<gid_t> group, std::string_view text) {
  const OwnedDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0400));
  if (!file.has_value()) return SystemError(path, errno);
  while (!text.empty()) {
    const ssize_t written = ::write(file.number(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError(path, errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
  if (group.has_value() && (::fchown(file.number(), static_cast<uid_t>(-1), *group) != 0 ||
                            ::fchmod(file.number(), 0440) != 0)) {
    return SystemError(path, errno);
  }
  return absl::OkStatus();
}

absl::Status WriteFiles(const std::string& target, std::optional<gid_t> group,
                        const Secrets& files) {
  absl::Status status;
  files.ForEach([&](const std::string& name, std::string_view text) {
    if (!IsFileName(name)) return;
    status.Update(WriteFile(absl::StrCat(target, "/", name), group, text));
  });
  if (!status.ok()) return status;
  const mode_t mode = group.has_value() ? 0550 : 0500;
  if ((group.has_value() && ::chown(target.c_str(), static_cast<uid_t>(-1), *group) != 0) ||
      ::chmod(target.c_str(), mode) != 0) {
    return SystemError(target, errno);
  }
  // The file system, not only this mount of it: a container has a mount of its own, which may write.
  if (::mount(nullptr, target.c_str(), nullptr, MS_REMOUNT | MS_RDONLY | kFlags, nullptr) != 0) {
    return SystemError(target, errno);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> HasCredentials(const std::string& target) {
  const absl::StatusOr<bool> mounted = driver::IsMounted(target);
  if (!mounted.ok() || !*mounted) return mounted;
  struct statvfs status = {};
  if (::statvfs(target.c_str(), &status) != 0) return SystemError(target, errno);
  return (status.f_flag & ST_RDONLY) != 0;
}

absl::Status MountCredentials(const std::string& target, std::optional<gid_t> group,
                              const Secrets& files) {
  const absl::StatusOr<bool> complete = HasCredentials(target);
  if (!complete.ok()) return complete.status();
  if (*complete) return absl::OkStatus();
  if (absl::Status cleared = driver::UnmountLazily(target); !cleared.ok()) return cleared;
  if (::mkdir(target.c_str(), 0750) != 0 && errno != EEXIST) return SystemError(target, errno);
  if (::mount("tmpfs", target.c_str(), "tmpfs", kFlags, kSize) != 0) {
    return SystemError(target, errno);
  }
  absl::Status written = WriteFiles(target, group, files);
  if (!written.ok()) driver::UnmountLazily(target).IgnoreError();
  return written;
}

absl::Status UnmountCredentials(const std::string& target) {
  if (absl::Status status = driver::UnmountLazily(target); !status.ok()) {
    return absl::InternalError(status.message());
  }
  if (::rmdir(target.c_str()) != 0 && errno != ENOENT) return SystemError(target, errno);
  return absl::OkStatus();
}

}  // namespace cbt::kube::cosi

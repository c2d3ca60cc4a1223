#include "rpc/watched_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace cbt::rpc {
namespace {

constexpr size_t kMostBytes = size_t{4} << 20;

absl::Status Failed(const std::string& path, int error) {
  const std::string text = path + ": " + std::generic_category().message(error);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(text);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    case EISDIR:
      return absl::InvalidArgumentError(text);
    default:
      return absl::UnavailableError(text);
  }
}

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failed(path, errno);
  std::string text;
  char buffer[16384];
  for (;;) {
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      close(fd);
      return Failed(path, error);
    }
    if (count == 0) break;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > kMostBytes) {
      close(fd);
      return absl::InvalidArgumentError(path + ": longer than 4 MiB");
    }
  }
  close(fd);
  return text;
}

FileState StateOf(const std::string& path) noexcept {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return {};
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size = status.st_size,
          .modified = status.st_mtim,
          .changed = status.st_ctim};
}

}  // namespace cbt::rpc

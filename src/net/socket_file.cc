#include "net/socket_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::net {
namespace {

constexpr mode_t kLockMode = 0600;

std::string About(const std::string& path, std::string_view why) {
  return absl::StrCat("listen: ", path, ": ", AbslView(why));
}

absl::Status SystemError(const std::string& path, int error) {
  return absl::UnavailableError(About(path, ErrnoText(error)));
}

// Opens and locks the lock file. A holder removes the file when it ends, while others may wait with
// it open, so the lock counts only if the file is still the one at the path.
absl::StatusOr<OwnedDescriptor> Lock(const std::string& lock_path) {
  for (;;) {
    OwnedDescriptor file(
        open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kLockMode));
    if (!file.has_value()) return SystemError(lock_path, errno);
    if (flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) {
        return absl::FailedPreconditionError(
            About(lock_path, "another server holds the lock on this socket"));
      }
      return SystemError(lock_path, errno);
    }
    struct stat opened = {};
    struct stat present = {};
    if (fstat(file.number(), &opened) == 0 && stat(lock_path.c_str(), &present) == 0 &&
        opened.st_dev == present.st_dev && opened.st_ino == present.st_ino) {
      return file;
    }
  }
}

// Removes the socket of a server that no longer runs.
absl::Status RemoveStale(const std::string& path, const sockaddr_un& address) {
  struct stat present = {};
  if (lstat(path.c_str(), &present) != 0) {
    return errno == ENOENT ? absl::OkStatus() : SystemError(path, errno);
  }
  if (!S_ISSOCK(present.st_mode)) {
    return absl::FailedPreconditionError(About(path, "exists and is not a socket"));
  }
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return SystemError(path, errno);
  const bool connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const int error = errno;
  close(fd);
  // EAGAIN: a server listens, but is busy.
  if (connected || error == EAGAIN) {
    return absl::FailedPreconditionError(About(path, "another server listens on this socket"));
  }
  if (error != ECONNREFUSED) return SystemError(path, error);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return SystemError(path, errno);
  return absl::OkStatus();
}

}  // namespace

SocketFile::SocketFile(std::string path, std::string lock_path, OwnedDescriptor lock)
    : path_(std::move(path)), lock_path_(std::move(lock_path)), lock_(std::move(lock)) {}

absl::StatusOr<std::unique_ptr<SocketFile>> SocketFile::Claim(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(About(
        path, absl::StrCat("the socket path is too long: at most ", sizeof address.sun_path - 1,
                           " bytes are allowed, not ", path.size())));
  }
  path.copy(address.sun_path, path.size());
  const std::string lock_path = path + ".lock";
  absl::StatusOr<OwnedDescriptor> lock = Lock(lock_path);
  if (!lock.ok()) return lock.status();
  // From here on the destructor releases the lock.
  std::unique_ptr<SocketFile> file(new SocketFile(path, lock_path, *std::move(lock)));
  if (absl::Status status = RemoveStale(path, address); !status.ok()) return status;
  return file;
}

SocketFile::~SocketFile() {
  if (listening_) unlink(path_.c_str());
  // While it is locked: see Lock().
  unlink(lock_path_.c_str());
}

absl::Status SocketFile::SetMode() {
  listening_ = true;
  if (chmod(path_.c_str(), kSocketMode) != 0) return SystemError(path_, errno);
  return absl::OkStatus();
}

absl::Status SocketFile::SetGroup(gid_t group) {
  constexpr auto kSameOwner = static_cast<uid_t>(-1);
  if (lchown(path_.c_str(), kSameOwner, group) != 0) return SystemError(path_, errno);
  return absl::OkStatus();
}

}  // namespace cbt::net

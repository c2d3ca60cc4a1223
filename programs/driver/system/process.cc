#include "programs/driver/system/process.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/descriptor.h"
#include "base/file_io.h"

namespace cbt::driver {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::string> CommandOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/cmdline"), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return absl::StrSplit(text, '\0', absl::SkipEmpty());
}

absl::StatusOr<bool> IsListening(const std::string& socket) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (socket.size() >= sizeof(address.sun_path)) return FileError(socket, ENAMETOOLONG);
  std::memcpy(address.sun_path, socket.data(), socket.size());
  const OwnedDescriptor file(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!file.has_value()) return FileError(socket, errno);
  if (Retry([&] {
        return ::connect(file.number(), reinterpret_cast<const sockaddr*>(&address),
                         sizeof(address));
      }) == 0 ||
      errno == EAGAIN) {  // its queue is full
    return true;
  }
  if (errno == ENOENT || errno == ECONNREFUSED) return false;
  return FileError(socket, errno);
}

}  // namespace cbt::driver

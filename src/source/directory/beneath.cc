#include "source/directory/beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/descriptor.h"

namespace cbt {

int OpenBeneath(int root, const std::string& path, int flags) {
  struct open_how how = {};
  how.flags = static_cast<uint64_t>(flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  for (int attempt = 0;; ++attempt) {
    const long descriptor = ::syscall(SYS_openat2, root, path.c_str(), &how, sizeof(how));
    if (descriptor >= 0) return static_cast<int>(descriptor);
    // EAGAIN: a concurrent rename below the root, so that the kernel can't be sure.
    if (errno == EAGAIN && attempt < 16) continue;
    // EPERM: system call filters return it for unknown calls.
    if (errno == ENOSYS || errno == EPERM) return OpenBeneathStepwise(root, path, flags);
    return -1;
  }
}

int OpenBeneathStepwise(int root, const std::string& path, int flags) {
  OwnedDescriptor directory(::openat(root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  size_t begin = 0;
  while (directory.has_value()) {
    const size_t slash = path.find('/', begin);
    const bool last = slash == std::string::npos;
    const std::string name = path.substr(begin, last ? std::string::npos : slash - begin);
    OwnedDescriptor next;
    if (name.empty() || name == "..") {
      errno = EXDEV;
    } else {
      next = OwnedDescriptor(
          ::openat(directory.number(), name.c_str(),
                   last ? flags | O_NOFOLLOW : O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    }
    if (last) return next.Release();
    directory = std::move(next);
    begin = slash + 1;
  }
  return -1;
}

bool IsAbsent(int error) noexcept {
  return error == ENOENT || error == ENOTDIR || error == EXDEV || error == ELOOP ||
         error == ENAMETOOLONG;
}

}  // namespace cbt

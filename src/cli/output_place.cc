#include "cli/output_place.h"

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include "cli/status.h"

namespace cbt::cli {

absl::StatusOr<OutputPlace> FindOutputPlace(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return OpenError(path, errno);
    if (path.empty() || path.back() == '/') return UsageError("'" + path + "'", "not a file name");
    return OutputPlace{path};
  }
  std::array<char, PATH_MAX> resolved{};
  if (realpath(path.c_str(), resolved.data()) == nullptr || stat(resolved.data(), &info) != 0) {
    return OpenError(path, errno);
  }
  if (S_ISDIR(info.st_mode)) return UsageError(path, "is a directory");
  if (!S_ISREG(info.st_mode)) return UsageError(path, "is not a regular file");
  return OutputPlace{resolved.data(), info};
}

}  // namespace cbt::cli

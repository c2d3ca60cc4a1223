#include "programs/cbt/support/output_place.h"

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include "base/file_io.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

// `path` without symbolic links, as far as it exists.
absl::Status CheckDirectory(const std::string& path, const InputFiles& inputs,
                            const std::string& shown) {
  struct stat info {};
  if (stat(DirectoryOf(path).c_str(), &info) == 0 && inputs.Include(info)) {
    return UsageError(shown, "lies in a directory that is an input");
  }
  return absl::OkStatus();
}

}  // namespace

bool IsStdout(const std::string& path) { return path == "-" || path == "/dev/stdout"; }

absl::StatusOr<OutputPlace> FindOutputPlace(const std::string& path, const InputFiles& inputs) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return OpenError(path, errno);
    if (path.empty() || path.back() == '/') return UsageError("'" + path + "'", "not a file name");
    if (absl::Status status = CheckDirectory(path, inputs, path); !status.ok()) return status;
    return OutputPlace{path};
  }
  std::array<char, PATH_MAX> resolved{};
  if (realpath(path.c_str(), resolved.data()) == nullptr || stat(resolved.data(), &info) != 0) {
    return OpenError(path, errno);
  }
  if (S_ISDIR(info.st_mode)) return UsageError(path, "is a directory");
  if (!S_ISREG(info.st_mode)) return UsageError(path, "is not a regular file");
  if (inputs.Include(info)) return UsageError(path, "is one of the inputs");
  OutputPlace place{resolved.data(), info};
  if (absl::Status status = CheckDirectory(place.path, inputs, path); !status.ok()) return status;
  return place;
}

}  // namespace cbt::cli

#include "cli/output_place.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include "cli/status.h"

namespace cbt::cli {
namespace {

bool IsOneOf(const OutputPlace& place, std::span<const std::string> inputs) {
  // The place is an absolute path without links.
  const std::string folder = place.path.substr(0, place.path.rfind('/') + 1);
  struct stat parent {};
  const bool has_parent = stat(folder.c_str(), &parent) == 0;
  for (const std::string& input : inputs) {
    struct stat info {};
    // What is not there was not read either.
    if ((input == "-" ? fstat(STDIN_FILENO, &info) : stat(input.c_str(), &info)) != 0) continue;
    if (MayBeSameFile(info, *place.present)) return true;
    if (S_ISDIR(info.st_mode) && has_parent && MayBeSameFile(info, parent)) return true;
  }
  return false;
}

}  // namespace

bool MayBeSameFile(const struct stat& a, const struct stat& b) noexcept {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

absl::StatusOr<OutputPlace> FindOutputPlace(const std::string& path,
                                            std::span<const std::string> inputs) {
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
  OutputPlace place{resolved.data(), info};
  if (IsOneOf(place, inputs)) return UsageError(path, "is one of the inputs itself");
  return place;
}

}  // namespace cbt::cli

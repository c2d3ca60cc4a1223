#include "source/folder.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "map/file_io.h"
#include "source/beneath.h"

namespace cbt {

absl::StatusOr<std::vector<std::string>> NamesIn(int descriptor) {
  std::vector<std::string> names;
  DIR* const directory = ::fdopendir(descriptor);
  if (directory == nullptr) {
    const int error = errno;
    ::close(descriptor);
    return FileError("list the volume", error);
  }
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(directory);  // NOLINT(concurrency-mt-unsafe): own stream
    if (entry == nullptr) break;
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  const int error = errno;
  ::closedir(directory);
  if (error != 0) return FileError("list the volume", error);
  // The first of several things that are wrong is always the same one.
  std::sort(names.begin(), names.end());
  return names;
}

bool MayBeThere(int error) noexcept {
  // The whole path may be too long for one call where the name is not.
  return !IsAbsent(error) || error == ENAMETOOLONG;
}

absl::Status AsDamage(const absl::Status& status) {
  const bool passing = absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
  return passing ? status : absl::FailedPreconditionError(status.message());
}

}  // namespace cbt

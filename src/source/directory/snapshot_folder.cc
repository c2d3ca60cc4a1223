#include "source/directory/snapshot_folder.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>

#include "base/descriptor.h"
#include "base/file_io.h"
#include "source/directory/beneath.h"

namespace cbt {

absl::StatusOr<std::vector<std::string>> NamesIn(int descriptor) {
  OwnedDescriptor owner(descriptor);
  const OwnedFolder directory(::fdopendir(descriptor));
  if (directory == nullptr) return FileError("list the volume", errno);
  static_cast<void>(owner.Release());
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* const entry =
        ::readdir(directory.get());  // NOLINT(concurrency-mt-unsafe): own stream
    if (entry == nullptr) break;
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  if (errno != 0) return FileError("list the volume", errno);
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

#include "source/directory/snapshot_folder.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/absl_view.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "source/directory/beneath.h"

namespace cbt {
namespace {

// Takes ownership of the directory `descriptor`.
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
  // Sorted, so that the first of several errors is always the same one.
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

SnapshotFolder SnapshotFolder::Read(int root, std::string volume) {
  SnapshotFolder folder(root, std::move(volume));
  const int descriptor = OpenBeneath(root, folder.volume_.empty() ? "." : folder.volume_,
                                     O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    if (!IsAbsent(errno)) folder.status_ = FileError("open the volume", errno);
    return folder;
  }
  absl::StatusOr<std::vector<std::string>> names = NamesIn(descriptor);
  if (names.ok()) {
    folder.names_ = *std::move(names);
  } else {
    folder.status_ = names.status();
  }
  return folder;
}

std::string SnapshotFolder::PathOf(std::string_view name) const {
  return volume_.empty() ? std::string(name) : absl::StrCat(volume_, "/", AbslView(name));
}

int SnapshotFolder::Open(std::string_view name, int flags) const {
  return OpenBeneath(root_, PathOf(name), flags);
}

bool MayBeThere(int error) noexcept {
  // ENAMETOOLONG: the whole path may be too long for one call although the name is not.
  return !IsAbsent(error) || error == ENAMETOOLONG;
}

absl::Status AsDamage(const absl::Status& status) {
  const bool transient = absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
  return transient ? status : absl::FailedPreconditionError(status.message());
}

}  // namespace cbt

#include "source/directory/snapshot_directory.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "base/text.h"
#include "source/directory/beneath.h"

namespace cbt {
namespace {

// Takes ownership of the directory `descriptor`.
absl::StatusOr<std::vector<std::string>> NamesIn(int descriptor) {
  OwnedDescriptor owner(descriptor);
  const OwnedDirectory stream(::fdopendir(descriptor));
  if (stream == nullptr) return FileError("list the volume", errno);
  static_cast<void>(owner.Release());
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* const entry =
        ::readdir(stream.get());  // NOLINT(concurrency-mt-unsafe): own stream
    if (entry == nullptr) break;
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  if (errno != 0) return FileError("list the volume", errno);
  // Sorted, so that the first of several errors is always the same one.
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

SnapshotDirectory SnapshotDirectory::Read(int root, std::string volume) {
  SnapshotDirectory directory(root, std::move(volume));
  const int descriptor = OpenBeneath(root, directory.volume_.empty() ? "." : directory.volume_,
                                     O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    if (!IsAbsent(errno)) directory.status_ = FileError("open the volume", errno);
    return directory;
  }
  absl::StatusOr<std::vector<std::string>> names = NamesIn(descriptor);
  if (names.ok()) {
    directory.names_ = *std::move(names);
  } else {
    directory.status_ = names.status();
  }
  return directory;
}

std::string SnapshotDirectory::PathOf(std::string_view name) const {
  return volume_.empty() ? std::string(name) : absl::StrCat(volume_, "/", AbslView(name));
}

int SnapshotDirectory::Open(std::string_view name, int flags) const {
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

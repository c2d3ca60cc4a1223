// Files that are written whole or not at all, and files that are read where they lie.
#ifndef CBT_BASE_FILE_IO_H_
#define CBT_BASE_FILE_IO_H_

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace cbt {

// The status that the error number of a failed call on `path` means.
absl::Status FileError(std::string_view path, int error);

// Writes `parts` behind each other to a new file and moves that to `path`, where it replaces what
// was there: after any failure or crash the old file is there or the new one. `sync`: returns when
// both the bytes and the name are on the disk.
// A crash may leave a file beside it whose name begins with a dot and ends in kPartialExtension.
// Errors: as FileError().
absl::Status WriteFileAtomically(const std::string& path,
                                 std::span<const std::span<const uint8_t>> parts, bool sync);

inline constexpr std::string_view kPartialExtension = ".partial";

// The same for a file of the folder that `folder` is a descriptor of. `shown` is its path in
// messages.
absl::Status WriteFileAtomicallyAt(int folder, const std::string& file, std::string_view shown,
                                   std::span<const std::span<const uint8_t>> parts, bool sync);

// What `call` says, a system call that a signal may interrupt before it has done anything: made
// again and again as long as it is.
template <typename Call>
auto Retry(Call call) noexcept {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

// open(2) as Retry() does it.
int OpenFile(const std::string& path, int flags, unsigned mode = 0) noexcept;

// Brings the names in a folder to the disk. The second takes a descriptor of it, and its path for
// messages.
absl::Status SyncFolder(const std::string& path);
absl::Status SyncFolder(int folder, std::string_view shown);

// Makes the folder `path` (no parents) if it is not there. `sync`: returns when its name is on the
// disk, whoever made it; without that a loss of power would take it away with everything in it.
// Errors: as FileError().
absl::Status MakeFolder(const std::string& path, bool sync);

// The folder that holds `path`; "." when it has none.
std::string FolderOf(const std::string& path);

// The bytes of a regular file, mapped. It must not be made shorter while they are mapped: reading
// behind the end would kill the process. Files of ours are replaced and never changed; where others
// write, CheckUnchanged() tells whether they did.
class MappedFile {
 public:
  // kYes: CheckUnchanged() is going to be asked, for which the file stays open as long as the
  // object lives. Many can be mapped at a time, and few be open.
  enum class Watched { kNo, kYes };

  // Errors: as FileError(); INVALID_ARGUMENT for what is no regular file.
  // `name` stands for the path in messages; the path itself if empty.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path,
                                                                std::string_view name = {},
                                                                Watched watched = Watched::kNo);
  // Takes over `descriptor`, also where it fails.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> FromDescriptor(
      int descriptor, std::string_view name, Watched watched = Watched::kNo);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const uint8_t> bytes() const noexcept { return {bytes_, size_}; }

  // OK while the file has the size and the time of the last write that it had when it was opened,
  // whatever its name stands for now. Requires: opened as Watched::kYes.
  // Errors: ABORTED; UNAVAILABLE when that can't be told.
  absl::Status CheckUnchanged() const;

 private:
  MappedFile(int descriptor, std::string name) noexcept
      : descriptor_(descriptor), name_(std::move(name)) {}

  int descriptor_;  // -1: closed
  const std::string name_;
  timespec written_at_ = {};
  uint8_t* bytes_ = nullptr;  // nobody may write to them
  size_t size_ = 0;
};

}  // namespace cbt

#endif  // CBT_BASE_FILE_IO_H_

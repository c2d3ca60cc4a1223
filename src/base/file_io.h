// Files that are written completely or not at all, and files that are read through a mapping.
#ifndef CBT_BASE_FILE_IO_H_
#define CBT_BASE_FILE_IO_H_

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace cbt {

// The status for the error number of a failed call on `path`.
absl::Status FileError(std::string_view path, int error);

// Writes all of `bytes`. Returns 0 or an error number.
int WriteAll(int descriptor, std::span<const uint8_t> bytes) noexcept;

// Writes `parts` one after the other to a new file and renames that to `path`, replacing an
// existing file: after any failure or crash, `path` holds either the old or the new file. `sync`:
// returns once both the bytes and the name are on disk. A crash may leave a file in the same
// directory whose name begins with a dot and ends in kPartialExtension.
// Errors: as FileError().
absl::Status WriteFileAtomically(const std::string& path,
                                 std::span<const std::span<const uint8_t>> parts, bool sync);

inline constexpr std::string_view kPartialExtension = ".partial";

// The same for a file in the directory with the descriptor `directory`. `shown` is the file's path
// in messages.
absl::Status WriteFileAtomicallyAt(int directory, const std::string& file, std::string_view shown,
                                   std::span<const std::span<const uint8_t>> parts, bool sync);

// Opens a new file for writing in the directory of `path`, which is relative to `at` as in openat(2),
// and stores its name in `temporary`, one that a crash may leave. No other process has it, also where
// processes of several machines or containers have the same number.
// Returns -1 and sets errno on failure.
int CreateBeside(int at, const std::string& path, std::string& temporary);

// Makes a system call, and repeats it while a signal interrupts it before it has done anything
// (EINTR). Returns its result.
template <typename Call>
auto Retry(Call call) noexcept {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

// open(2) with Retry().
int OpenFile(const std::string& path, int flags, unsigned mode = 0) noexcept;

// Syncs the names in a directory to disk. The second overload takes its descriptor, and its path
// for messages.
absl::Status SyncDirectory(const std::string& path);
absl::Status SyncDirectory(int directory, std::string_view shown);

// Creates the directory `path` if it is missing, but not its parents. `sync`: returns once its name
// is on disk, even if it existed already; otherwise a power loss could remove it with everything in
// it.
// Errors: as FileError().
absl::Status MakeDirectory(const std::string& path, bool sync);

// Whether a file that is still open was written to between two looks at it. Programs that restore
// files set the time of the last write; the other one only the kernel sets. It does so, too, where
// a name of the file is removed, and a file that was deleted or replaced is read to its end.
bool WasWritten(const struct stat& before, const struct stat& now) noexcept;

// The directory of `path`; "." if it names none.
std::string DirectoryOf(const std::string& path);

// The bytes of a regular file, mapped. The file must not be truncated meanwhile: reading past its
// end would kill the process. libcbt replaces its own files and never changes them; for files that
// others may write, use CheckUnchanged().
class MappedFile {
 public:
  // kYes: keeps the file open as long as the object lives, for CheckUnchanged(). A process can have
  // many files mapped but few open.
  enum class Watched { kNo, kYes };

  // Errors: as FileError(); INVALID_ARGUMENT for anything but a regular file. `name` is used in
  //         messages; the path if empty.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path,
                                                                std::string_view name = {},
                                                                Watched watched = Watched::kNo);
  // `descriptor`: open for reading.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> FromDescriptor(
      OwnedDescriptor descriptor, std::string_view name, Watched watched = Watched::kNo);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const uint8_t> bytes() const noexcept { return {bytes_, size_}; }

  // OK if the file still has the size and the times that it had when it was opened, even if another
  // file has replaced it.
  // Errors: ABORTED; UNAVAILABLE if that can't be determined.
  absl::Status CheckUnchanged() const;

 private:
  MappedFile(int descriptor, std::string name) noexcept
      : descriptor_(descriptor), name_(std::move(name)) {}

  int descriptor_;  // -1: closed
  const std::string name_;
  struct stat opened_ = {};
  uint8_t* bytes_ = nullptr;  // read-only
  size_t size_ = 0;
};

}  // namespace cbt

#endif  // CBT_BASE_FILE_IO_H_

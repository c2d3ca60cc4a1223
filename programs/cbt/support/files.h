// Files that the user names: those that a command reads, and the one that it writes.
#ifndef CBT_PROGRAMS_CBT_SUPPORT_FILES_H_
#define CBT_PROGRAMS_CBT_SUPPORT_FILES_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::cli {

class InputFiles {
 public:
  InputFiles() = default;
  // `names` as the user gave them: a path, for a directory every file in it, "-" for standard
  // input. Other addresses and "" are ignored.
  explicit InputFiles(std::vector<std::string> names) : names_(std::move(names)) {}

  // For SourceOptions::open: records every file that it opens as an input, including those that the
  // user did not name, such as an image's backing file. This must outlive it. Empty if standard
  // input is read: it names no other files, and an opener would take "-" for one.
  std::function<absl::StatusOr<int>(const std::string& path)> Opener();

  void Add(const InputFiles& others);

  // Whether `file` is one of them, or a directory whose files all are. True when in doubt.
  bool Include(const struct stat& file) const;

 private:
  std::vector<std::string> names_;
  std::vector<struct stat> opened_;
};

// Warns if the file `base` was written more than a minute after the file `target`: the two may be
// swapped. Their times are no proof, since copies have their own. Says nothing of other inputs.
void WarnIfSwapped(const char* subcommand, const std::string& base, const std::string& target);

// Whether the inode numbers say that both are one file; use this to refuse when in doubt.
bool MayBeSameFile(const struct stat& a, const struct stat& b) noexcept;

// Only callable while there is one thread: it is set and put back.
mode_t CurrentUmask();

// True for "-" and for /dev/stdout, which is a link: its target would be replaced, and its contents
// lost.
bool IsStdout(const std::string& path);

struct OutputPlace {
  std::string path;  // not a symbolic link
  std::optional<struct stat> present = {};
};

// Checks what an output file would replace: nothing, or a regular file. The target of a symbolic
// link is replaced, and never a device, a pipe or a socket: such a node would be gone for all its
// users.
// Errors: INVALID_ARGUMENT; NOT_FOUND for a dangling link; as OpenError().
//
// None of `inputs` is replaced: the only image of a volume could be lost to a few bytes of
// metadata. Nor is anything created in a directory that is an input.
absl::StatusOr<OutputPlace> FindOutputPlace(const std::string& path, const InputFiles& inputs);

// A temporary file in the directory of its destination. It is removed if the object is destroyed
// without Commit(), or if SIGINT, SIGTERM or SIGHUP ends the process. At most one may exist per
// process at a time, because signal handlers have to find it.
class TempFile {
 public:
  // Creates an empty file. `path` is its destination; `mode` are its permissions, less the umask.
  // Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT, UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<TempFile>> Create(const std::string& path,
                                                          mode_t mode = 0600);

  ~TempFile();
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  int descriptor() const noexcept { return descriptor_; }

  // Sets the permissions `mode`, if given, syncs the file and renames it to its destination,
  // replacing any file there. Call once.
  // Errors: UNAVAILABLE; the destination is then unchanged, unless only the last sync of the
  //         directory failed.
  absl::Status Commit(std::optional<mode_t> mode = std::nullopt);

 private:
  TempFile(std::string temporary, std::string path);

  int descriptor_ = -1;
  const std::string temporary_;
  const std::string path_;
  bool committed_ = false;
};

// Writes `parts` one after the other to the file at `path`, from FindOutputPlace(), which is replaced
// only when it is complete and on disk.
// Errors: those of TempFile.
absl::Status WriteOutputFile(const std::string& path,
                             std::span<const std::span<const uint8_t>> parts);

// The whole file at `path`, at most 1 MiB; errors begin with `option`.
// Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (a directory, too large), UNAVAILABLE.
absl::StatusOr<std::string> ReadTextFile(const std::string& option, const std::string& path);

// The lines `KEY=VALUE` of the file at `path`; empty lines are ignored. Errors give line numbers
// and never quote the lines, which are secrets.
// Errors: as above; INVALID_ARGUMENT for a line without `=` or a duplicate key.
absl::StatusOr<std::map<std::string, std::string>> ReadSecrets(const std::string& option,
                                                               const std::string& path);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_SUPPORT_FILES_H_

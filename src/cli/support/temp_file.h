// A file that appears under its name whole or not at all.
#ifndef CBT_CLI_SUPPORT_TEMP_FILE_H_
#define CBT_CLI_SUPPORT_TEMP_FILE_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::cli {

// A temporary file in the folder of its final place. It is removed when the object dies without
// Commit(), and when SIGINT, SIGTERM or SIGHUP ends the process. At most one may exist in a process
// at a time, because signal handlers have to find it.
class TempFile {
 public:
  // Creates the file, empty. `path` is where it will go.
  // Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT, UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<TempFile>> Create(const std::string& path);

  ~TempFile();
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  int descriptor() const noexcept { return descriptor_; }

  // Gives the file the permissions `mode`, brings it to the disk and then to its place, where it
  // replaces what was there. Call once.
  // Errors: UNAVAILABLE; what was there is untouched then, unless only the last sync of the folder
  //         failed.
  absl::Status Commit(mode_t mode);

 private:
  TempFile(int descriptor, std::string temporary, std::string path);

  int descriptor_;
  const std::string temporary_;
  const std::string path_;
  bool committed_ = false;
};

}  // namespace cbt::cli

#endif  // CBT_CLI_SUPPORT_TEMP_FILE_H_

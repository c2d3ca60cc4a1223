// A file that appears under its name complete or not at all.
#ifndef CBT_PROGRAMS_CBT_SUPPORT_TEMP_FILE_H_
#define CBT_PROGRAMS_CBT_SUPPORT_TEMP_FILE_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::cli {

// A temporary file in the directory of its destination. It is removed if the object is destroyed
// without Commit(), or if SIGINT, SIGTERM or SIGHUP ends the process. At most one may exist per
// process at a time, because signal handlers have to find it.
class TempFile {
 public:
  // Creates an empty file. `path` is its destination.
  // Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT, UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<TempFile>> Create(const std::string& path);

  ~TempFile();
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  int descriptor() const noexcept { return descriptor_; }

  // Sets the permissions `mode`, syncs the file and renames it to its destination, replacing any
  // file there. Call once.
  // Errors: UNAVAILABLE; the destination is then unchanged, unless only the last sync of the
  //         directory failed.
  absl::Status Commit(mode_t mode);

 private:
  TempFile(int descriptor, std::string temporary, std::string path);

  int descriptor_;
  const std::string temporary_;
  const std::string path_;
  bool committed_ = false;
};

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_SUPPORT_TEMP_FILE_H_

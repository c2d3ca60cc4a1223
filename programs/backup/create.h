// A backup of one volume: one snapshot in a repository, of which only what changed is read.
#ifndef CBT_PROGRAMS_BACKUP_CREATE_H_
#define CBT_PROGRAMS_BACKUP_CREATE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/source/copy_ranges.h"
#include "programs/backup/volume_snapshot.h"
#include "repository/repository.h"

namespace cbt::backup {

// What is known about a snapshot before its data is read.
class RangeSource {
 public:
  virtual ~RangeSource() = default;
  // What changed since the snapshot with the handle `base`.
  // Errors: FAILED_PRECONDITION, UNIMPLEMENTED, NOT_FOUND or INVALID_ARGUMENT where there is no such
  //         answer: then Allocated() is asked. Others end the backup.
  virtual absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(const std::string& base) = 0;
  // Where it may hold data; the rest is zero.
  // Errors: FAILED_PRECONDITION or UNIMPLEMENTED: then everything is read. Others end the backup.
  virtual absl::StatusOr<std::unique_ptr<ExtentCursor>> Allocated() = 0;
};

struct CreateProgress {
  uint64_t bytes_done = 0;   // read and stored
  uint64_t bytes_total = 0;  // that will be read
};

struct CreateOptions {
  std::string volume = {};
  std::optional<std::string> handle = {};  // of the snapshot, from which the next backup goes on
  std::vector<std::string> tags = {};      // further ones
  std::string program = {};                // as the snapshot shows it
  bool require_incremental = false;
  size_t threads = 4;  // each has a blob, and in a local place a pack at times: 40 MiB at most
  std::stop_token stop = {};
  // Asked before the snapshot is published: whether the input was still the same all the time.
  std::function<absl::Status()> check_input = nullptr;
  // Called by any thread, one at a time.
  std::function<void(const CreateProgress&)> on_progress = nullptr;
  // Called with each step down and why: "no delta: ...".
  std::function<void(const std::string&)> on_note = nullptr;
};

struct CreateResult {
  VolumeSnapshot snapshot = {};
  std::optional<repository::Id> parent = {};
  size_t blobs = 0;       // of the volume
  size_t blobs_read = 0;  // of them
  uint64_t bytes_read = 0;
  repository::StoredBytes stored = {};
};

// Reads from `input` what `ranges` says, and publishes the snapshot once everything that it needs is
// stored. A volume of which the repository has no usable parent is read as far as it is allocated,
// and if that is unknown, whole; each step is reported and stands in the snapshot's tags.
// Requires: LoadIndex(true).
// Errors: that of IsNotIncremental() for a step with `require_incremental`; INVALID_ARGUMENT for ranges of another
//         capacity than the input's, and for volumes past 32 TiB; those of the input, of `ranges`
//         and of the repository.
absl::StatusOr<CreateResult> Create(repository::Repository& repository, const CopyInput& input,
                                    RangeSource& ranges, const CreateOptions& options);

// Whether a backup ended because it would not have been incremental.
bool IsNotIncremental(const absl::Status& status);

}  // namespace cbt::backup

#endif  // CBT_PROGRAMS_BACKUP_CREATE_H_

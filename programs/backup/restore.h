// What a repository has of a volume, back to a file or device, or compared with one.
#ifndef CBT_PROGRAMS_BACKUP_RESTORE_H_
#define CBT_PROGRAMS_BACKUP_RESTORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/extent.h"
#include "cbt/source/copy_ranges.h"
#include "programs/backup/volume_snapshot.h"
#include "repository/repository.h"

namespace cbt::backup {

struct TransferProgress {
  uint64_t bytes_done = 0;  // looked at
  uint64_t bytes_total = 0;
  uint64_t bytes_written = 0;  // as data
  uint64_t bytes_fetched = 0;  // of blobs of the repository
};

struct TransferOptions {
  size_t threads = 8;  // each has a request's 8 MiB, and a blob twice: 48 MiB at most
  std::stop_token stop = {};
  // Restore() only: the blobs to look at, from FindMissing(); nullopt: all.
  std::optional<std::vector<uint32_t>> only = {};
  // Called by any thread, one at a time.
  std::function<void(const TransferProgress&)> on_progress = nullptr;
};

enum class Target {
  kZero,     // reads as zeros: a new file
  kUnknown,  // all of it is written
  kKept,     // is read first, and written only where it differs
};

// Writes the volume to `output` and syncs it. What lies past the volume's end is left alone.
// Errors: those of blobs and of the output, DATA_LOSS among them: everything that is written has the
//         content that its name says.
absl::StatusOr<TransferProgress> Restore(repository::Repository& repository,
                                         const VolumeContent& content, CopyOutput& output,
                                         Target target, const TransferOptions& options);

struct Comparison {
  uint64_t blobs = 0;  // that were compared
  // The first blob that differs from the data.
  std::optional<Extent> difference = {};
  TransferProgress progress = {};
};

// Compares blobs with `input`: each is read from both. `percent`: of the blobs, chosen at random; at
// least one.
// Errors: INVALID_ARGUMENT for an input of another size.
absl::StatusOr<Comparison> Compare(repository::Repository& repository, const VolumeContent& content,
                                   const CopyInput& input, double percent,
                                   const TransferOptions& options);

}  // namespace cbt::backup

#endif  // CBT_PROGRAMS_BACKUP_RESTORE_H_

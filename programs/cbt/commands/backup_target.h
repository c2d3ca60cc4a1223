// Where `cbtctl backup restore` writes: a new file, or in place a file, a device or an NBD export.
#ifndef CBT_PROGRAMS_CBT_COMMANDS_BACKUP_TARGET_H_
#define CBT_PROGRAMS_CBT_COMMANDS_BACKUP_TARGET_H_

#include <string>

#include "absl/status/statusor.h"
#include "programs/backup/restore.h"
#include "programs/backup/volume_snapshot.h"
#include "programs/cbt/commands/backup_ranges.h"
#include "programs/cbt/commands/nbd_options.h"
#include "repository/repository.h"

namespace cbt::cli {

struct RestoreRequest {
  std::string to;
  bool onto = false;
  std::string since;  // the snapshot that the target holds; empty: not said
  const RangeArguments& ranges;
  const NbdArguments& nbd;
};

// Restores `content`, that of `snapshot`. In place, nothing is written before everything that is
// said about the target was checked.
// Errors: INVALID_ARGUMENT for a target that is too small, in use or no place for a volume;
//         FAILED_PRECONDITION for one that does not hold what is said; as backup::Restore().
absl::StatusOr<backup::TransferProgress> RestoreTo(repository::Repository& repository,
                                                   const backup::VolumeSnapshot& snapshot,
                                                   const backup::VolumeContent& content,
                                                   const RestoreRequest& request,
                                                   backup::TransferOptions options);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_COMMANDS_BACKUP_TARGET_H_

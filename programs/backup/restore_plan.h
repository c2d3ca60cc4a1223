// Which blobs of a snapshot a target lacks, where it is known what the target holds; and samples of
// what is only believed to be there.
#ifndef CBT_PROGRAMS_BACKUP_RESTORE_PLAN_H_
#define CBT_PROGRAMS_BACKUP_RESTORE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/source/copy_ranges.h"
#include "programs/backup/volume_snapshot.h"

namespace cbt::backup {

struct HeldContent {
  // The target held this snapshot of the volume.
  const VolumeContent& snapshot;
  // What was written to it since then; null: nothing.
  ExtentCursor* written = nullptr;
  // Bytes of the target, as it is now.
  uint64_t target_bytes = 0;
};

// The blobs of `wanted` that the target may lack, in order: those of which the other snapshot has
// another one, those that `written` touches, and those that reach past what is known.
// Errors: those of `written`.
absl::StatusOr<std::vector<uint32_t>> FindMissing(const VolumeContent& wanted,
                                                  const HeldContent& held);

// Reads bytes from `offset` on, all of them.
using ReadBytes = std::function<absl::Status(uint64_t offset, std::span<uint8_t> out)>;

// Compares up to `samples` of the blobs that `numbers` names with what `read` finds in their place.
// They are chosen at random, most of them among those that are not zero: nearly all of a sparse
// volume is alike in every other one. Returns one that differs. Errors: those of `read`.
absl::StatusOr<std::optional<uint32_t>> FindDifferent(const VolumeContent& content,
                                                      std::span<const uint32_t> numbers,
                                                      const ReadBytes& read, size_t samples);

// Compares up to `samples` of the other blobs, chosen at random, with what the target holds.
// Errors: FAILED_PRECONDITION for one that differs: the target holds something else; those of the
//         target.
absl::Status CheckHeld(const VolumeContent& wanted, std::span<const uint32_t> missing,
                       CopyOutput& target, size_t samples);

}  // namespace cbt::backup

#endif  // CBT_PROGRAMS_BACKUP_RESTORE_PLAN_H_

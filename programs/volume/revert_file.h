// REVERT in a volume's directory: the snapshot to which the volume is going back.
// docs/reference/format.md.
#ifndef CBT_PROGRAMS_VOLUME_REVERT_FILE_H_
#define CBT_PROGRAMS_VOLUME_REVERT_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/directory.h"

namespace cbt::volume {

// `name`: of the snapshot, see IdOf(). Durable when it returns; after an error it may be there.
absl::Status WriteRevert(const Directory& directory, const std::string& name);

// The name of the snapshot.
// Errors: NOT_FOUND if no revert was interrupted; DATA_LOSS, UNIMPLEMENTED for a newer version,
//         file errors.
absl::StatusOr<std::string> ReadRevert(const Directory& directory);

// OK if it is not there. Durable when it returns.
absl::Status RemoveRevert(const Directory& directory);

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_REVERT_FILE_H_

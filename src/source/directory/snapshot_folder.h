// What is in a folder.
#ifndef CBT_SOURCE_DIRECTORY_SNAPSHOT_FOLDER_H_
#define CBT_SOURCE_DIRECTORY_SNAPSHOT_FOLDER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt {

// The names in the directory `descriptor`, which is taken over, sorted; without those that begin
// with a dot. Errors: as FileError(); a list is never shorter than the directory.
absl::StatusOr<std::vector<std::string>> NamesIn(int descriptor);

// Whether a file that the folder has named and that can't be opened may be there all the same, by
// the errno of OpenBeneath(). It is not when it has gone, or is a link that leads out.
bool MayBeThere(int error) noexcept;

// Why a file in a snapshot's folder can't be used, for whoever asks for what it may have told:
// FAILED_PRECONDITION, or the code itself of what may have passed the next time.
absl::Status AsDamage(const absl::Status& status);

}  // namespace cbt

#endif  // CBT_SOURCE_DIRECTORY_SNAPSHOT_FOLDER_H_

// Credentials as files of a Pod, in memory.
#ifndef CBT_PROGRAMS_COSI_NODE_CREDENTIALS_MOUNT_H_
#define CBT_PROGRAMS_COSI_NODE_CREDENTIALS_MOUNT_H_

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/secrets.h"

namespace cbt::kube::cosi {

// A tmpfs at `target`, which is made, with a file of mode 0400 for each secret; 0440, and of that
// group, if there is one. It is read-only once it is complete: a mount that is not was left by a
// process that was killed, and is made anew (C29).
// Errors: INTERNAL with what the system says.
absl::Status MountCredentials(const std::string& target, std::optional<gid_t> group,
                              const Secrets& files);

// True if a complete one is there.
absl::StatusOr<bool> HasCredentials(const std::string& target);

// Unmounts whatever is there, also under open files, and removes the directory. OK if nothing is.
absl::Status UnmountCredentials(const std::string& target);

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_NODE_CREDENTIALS_MOUNT_H_

// Trackers in directories that are open already: whatever a path names meanwhile, it is the same
// one.
#ifndef CBT_MAP_TRACKER_TRACKER_ACCESS_H_
#define CBT_MAP_TRACKER_TRACKER_ACCESS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "base/directory.h"
#include "cbt/change_tracker.h"

namespace cbt {

// As the functions of ChangeTracker, in `directory`, in place of options.directory.
class TrackerAccess {
 public:
  static absl::StatusOr<std::unique_ptr<ChangeTracker>> Create(TrackerOptions options,
                                                               const Directory& directory) {
    options.directory = directory.shown();
    return CreateIn(options, &directory);
  }
  static absl::StatusOr<std::unique_ptr<ChangeTracker>> Recover(TrackerOptions options,
                                                                const Directory& directory) {
    options.directory = directory.shown();
    return RecoverIn(options, &directory);
  }

 private:
  friend class ChangeTracker;
  // `directory`: null for that of the options.
  static absl::StatusOr<std::unique_ptr<ChangeTracker>> CreateIn(const TrackerOptions& options,
                                                                 const Directory* directory);
  static absl::StatusOr<std::unique_ptr<ChangeTracker>> RecoverIn(const TrackerOptions& options,
                                                                  const Directory* directory);
};

}  // namespace cbt

#endif  // CBT_MAP_TRACKER_TRACKER_ACCESS_H_

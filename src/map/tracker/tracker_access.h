// Trackers in folders that are open already: whatever a path names meanwhile, it is the same one.
#ifndef CBT_MAP_TRACKER_TRACKER_ACCESS_H_
#define CBT_MAP_TRACKER_TRACKER_ACCESS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "base/directory.h"
#include "cbt/change_tracker.h"

namespace cbt {

// As the functions of ChangeTracker, in `folder`, in place of options.directory.
class TrackerAccess {
 public:
  static absl::StatusOr<std::unique_ptr<ChangeTracker>> Create(TrackerOptions options,
                                                               const Folder& folder) {
    options.directory = folder.shown();
    return CreateIn(options, &folder);
  }
  static absl::StatusOr<std::unique_ptr<ChangeTracker>> Recover(TrackerOptions options,
                                                                const Folder& folder) {
    options.directory = folder.shown();
    return RecoverIn(options, &folder);
  }

 private:
  friend class ChangeTracker;
  // `folder`: null for that of the options.
  static absl::StatusOr<std::unique_ptr<ChangeTracker>> CreateIn(const TrackerOptions& options,
                                                                 const Folder* folder);
  static absl::StatusOr<std::unique_ptr<ChangeTracker>> RecoverIn(const TrackerOptions& options,
                                                                  const Folder* folder);
};

}  // namespace cbt

#endif  // CBT_MAP_TRACKER_TRACKER_ACCESS_H_

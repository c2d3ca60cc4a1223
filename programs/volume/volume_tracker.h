// The tracker of a volume: tracker-N/ in its directory, of which the manifest says which counts.
#ifndef CBT_PROGRAMS_VOLUME_VOLUME_TRACKER_H_
#define CBT_PROGRAMS_VOLUME_VOLUME_TRACKER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/directory.h"
#include "cbt/change_map.h"
#include "cbt/change_tracker.h"
#include "programs/volume/volume_manifest.h"

namespace cbt::volume {

// The tracker that counts. Others, which a resize left when it was interrupted, are removed.
// Errors: NOT_FOUND, those of ChangeTracker, file errors.
absl::StatusOr<std::unique_ptr<ChangeTracker>> OpenTracker(const Directory& volume,
                                                           const VolumeManifest& manifest);

// A tracker for `manifest`, which counts once that is written, and begins at `base`. What is there
// under its name is replaced. Durable when it returns.
absl::StatusOr<std::unique_ptr<ChangeTracker>> MakeTracker(const Directory& volume,
                                                           const VolumeManifest& manifest,
                                                           const std::string& base);

// Marks all that the map has. After an error, a part is marked.
absl::Status MarkAll(const ChangeMap& map, ChangeTracker& tracker);

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_VOLUME_TRACKER_H_

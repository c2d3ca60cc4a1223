#include "programs/volume/volume_tracker.h"

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "cbt/cursor.h"
#include "map/tracker/tracker_access.h"
#include "programs/volume/volume_directory.h"

namespace cbt::volume {
namespace {

TrackerOptions OptionsFor(const VolumeManifest& manifest, const std::string& base) {
  TrackerOptions options;
  options.geometry = {.capacity = manifest.capacity, .granularity = manifest.granularity};
  options.volume = manifest.name;
  options.base = base;
  options.region_bytes = manifest.region_bytes;
  return options;
}

absl::Status RemoveOthers(const Directory& volume, std::string_view kept) {
  absl::StatusOr<std::vector<std::string>> names = volume.List();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (!name.starts_with(kTrackerPrefix) || name == kept) continue;
    if (absl::Status status = volume.RemoveTree(name); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChangeTracker>> OpenTracker(const Directory& volume,
                                                           const VolumeManifest& manifest) {
  const std::string name = TrackerName(manifest.tracker);
  if (absl::Status status = RemoveOthers(volume, name); !status.ok()) return status;
  const absl::StatusOr<Directory> directory = volume.OpenDirectory(name);
  if (!directory.ok()) return directory.status();
  return TrackerAccess::Recover(OptionsFor(manifest, {}), *directory);
}

absl::StatusOr<std::unique_ptr<ChangeTracker>> MakeTracker(const Directory& volume,
                                                           const VolumeManifest& manifest,
                                                           const std::string& base) {
  const std::string name = TrackerName(manifest.tracker);
  if (absl::Status status = volume.RemoveTree(name); !status.ok()) return status;
  const absl::StatusOr<Directory> made = volume.MakeDirectory(name, /*sync=*/true);
  if (!made.ok()) return made.status();
  return TrackerAccess::Create(OptionsFor(manifest, base), *made);
}

absl::Status MarkAll(const ChangeMap& map, ChangeTracker& tracker) {
  const std::unique_ptr<ExtentCursor> cursor = MakeChangeMapCursor(map);
  return ForEachBatch(*cursor, [&tracker](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      if (absl::Status status = tracker.Mark(batch[i]); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
}

}  // namespace cbt::volume

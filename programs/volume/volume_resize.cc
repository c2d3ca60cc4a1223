// Growing an open volume. A tracker has one geometry, so the volume gets a new one that begins with
// everything that the old one knows; the manifest says which counts.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "map/tracker/tracker_access.h"
#include "programs/volume/volume_core.h"

namespace cbt::volume {
namespace {

absl::Status MarkAll(const ChangeMap& map, ChangeTracker& tracker) {
  const std::unique_ptr<ExtentCursor> cursor = MakeChangeMapCursor(map);
  return ForEachBatch(*cursor, [&tracker](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      if (absl::Status status = tracker.Mark(batch[i]); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
}

}  // namespace

// Requires: the gate is held, and one epoch is open.
absl::Status TrackedVolume::Core::SwitchTracker(const VolumeManifest& next,
                                                std::unique_ptr<ChangeTracker> tracker) {
  const absl::StatusOr<ChangeMap> changes = tracker_->Changes();
  if (!changes.ok()) return changes.status();
  if (absl::Status status = MarkAll(*changes, *tracker); !status.ok()) return status;
  if (absl::Status status = tracker->Checkpoint(); !status.ok()) return status;
  if (absl::Status status = WriteVolumeManifest((*directory_), next); !status.ok()) {
    // Either manifest may be on disk, and no write may be in one tracker only.
    if (!WriteVolumeManifest((*directory_), manifest_).ok()) open_.store(false);
    return status;
  }
  manifest_ = next;
  capacity_.store(next.capacity, std::memory_order_release);
  std::swap(tracker_, tracker);
  return absl::OkStatus();
}

// Durable when it returns.
absl::StatusOr<std::unique_ptr<ChangeTracker>> TrackedVolume::Core::MakeNextTracker(
    const VolumeManifest& next) {
  const std::string name = TrackerName(next.tracker);
  if (absl::Status status = directory_->RemoveTree(name); !status.ok()) return status;
  const absl::StatusOr<Directory> made = directory_->MakeDirectory(name, /*sync=*/true);
  if (!made.ok()) return made.status();
  return TrackerAccess::Create(OptionsOfTracker(next, tracker_->epochs().front().base), *made);
}

absl::Status TrackedVolume::Core::Resize(uint64_t capacity) {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  const std::lock_guard<std::mutex> admin(admin_);
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  const uint64_t before = manifest_.capacity;
  if (capacity == before) return absl::OkStatus();
  if (capacity < before || capacity > kMaxCapacity) {
    return absl::OutOfRangeError(absl::StrCat("a volume of ", before, " bytes can't get ", capacity,
                                              " bytes: it can only grow, up to ", kMaxCapacity));
  }
  if (absl::Status status = FinishEpoch(); !status.ok()) return status;
  VolumeManifest next = manifest_;
  next.capacity = capacity;
  ++next.tracker;
  const std::string old_name = TrackerName(manifest_.tracker);
  const std::string next_name = TrackerName(next.tracker);
  absl::StatusOr<std::unique_ptr<ChangeTracker>> tracker = MakeNextTracker(next);
  absl::Status status = tracker.status();
  if (status.ok() && ::ftruncate(data_.number(), static_cast<off_t>(capacity)) != 0) {
    status = FileError(directory_->Shown(kDataName), errno);
  }
  if (status.ok()) status = Sync();
  if (status.ok()) {
    const GateHold hold(gate_);
    status = SwitchTracker(next, *std::move(tracker));
  }
  if (status.ok()) {
    directory_->RemoveTree(old_name).IgnoreError();  // the next Open() removes it
    return status;
  }
  // If it is not known which tracker counts, both stay.
  if (!open_.load()) return status;
  directory_->RemoveTree(next_name).IgnoreError();
  if (::ftruncate(data_.number(), static_cast<off_t>(before)) != 0) {
    NoteError(FileError(directory_->Shown(kDataName), errno));
  }
  return status;
}

}  // namespace cbt::volume

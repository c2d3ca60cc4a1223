#include "programs/driver/metadata_provider.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "programs/volume/snapshot_reader.h"

namespace cbt::driver {
namespace {

absl::StatusOr<Snapshot> FindReady(Store& store, std::string_view id) {
  absl::StatusOr<Snapshot> snapshot = store.GetSnapshot(std::string(id));
  if (snapshot.ok() && !snapshot->ready()) {
    return absl::UnavailableError(absl::StrCat(snapshot->id, ": is not ready"));
  }
  return snapshot;
}

// Ids are never reused, so the ids alone identify the data.
absl::StatusOr<MetadataSource> SourceOf(absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor) {
  if (!cursor.ok()) return cursor.status();
  return MetadataSource{.cursor = *std::move(cursor)};
}

}  // namespace

absl::StatusOr<MetadataSource> MetadataProvider::OpenAllocated(std::string_view snapshot_id,
                                                               const StreamContext&) {
  const absl::StatusOr<Snapshot> snapshot = FindReady(store_, snapshot_id);
  if (!snapshot.ok()) return snapshot.status();
  const absl::StatusOr<std::unique_ptr<volume::SnapshotReader>> reader =
      volume::SnapshotReader::Open(store_.catalog().VolumeDirectory(snapshot->volume_id));
  if (!reader.ok()) return reader.status();
  return SourceOf((*reader)->Allocated(snapshot_id));
}

absl::StatusOr<MetadataSource> MetadataProvider::OpenDelta(std::string_view base_snapshot_id,
                                                           std::string_view target_snapshot_id,
                                                           const StreamContext&) {
  // Of one that was deleted, the target's volume may still have the mark.
  const absl::StatusOr<Snapshot> base = FindReady(store_, base_snapshot_id);
  if (!base.ok() && !absl::IsNotFound(base.status())) return base.status();
  const absl::StatusOr<Snapshot> target = FindReady(store_, target_snapshot_id);
  if (!target.ok()) return target.status();
  if (base.ok() && base->volume_id != target->volume_id) {
    return absl::InvalidArgumentError("the snapshots are of different volumes");
  }
  const absl::StatusOr<std::unique_ptr<volume::SnapshotReader>> reader =
      volume::SnapshotReader::Open(store_.catalog().VolumeDirectory(target->volume_id));
  if (!reader.ok()) return reader.status();
  return SourceOf((*reader)->Delta(base_snapshot_id, target_snapshot_id));
}

}  // namespace cbt::driver

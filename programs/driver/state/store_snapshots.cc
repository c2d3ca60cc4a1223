// Snapshots of a client.
//
// A name is reserved, the snapshot is cut in the volume, the cut is recorded, and only then does
// anyone learn of it. A reserved one that the volume does not have was never taken; a recorded one
// that it does not have was lost. "Not there" alone is no answer.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "programs/driver/state/errors.h"
#include "programs/driver/state/store.h"
#include "programs/volume/snapshot_reader.h"

namespace cbt::driver {
namespace {

// Whether what the volume has under the id is what was recorded. Some file systems keep the time of
// a file in whole seconds.
bool IsCut(const volume::SnapshotInfo& info, const SnapshotCut& cut) {
  constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;
  return info.size == cut.size &&
         info.created_ns / kNanosecondsPerSecond == cut.created_ns / kNanosecondsPerSecond;
}

SnapshotCut CutOf(const volume::SnapshotInfo& info) {
  return {.created_ns = info.created_ns, .size = info.size};
}

// Known only from a record of version 1.0, and not looked at since.
bool IsUnknown(const SnapshotCut& cut) { return cut == SnapshotCut{}; }

}  // namespace

void Store::LoadSnapshots(const std::string& id) {
  const absl::StatusOr<std::unique_ptr<volume::SnapshotReader>> reader =
      volume::SnapshotReader::Open(catalog_->VolumeDirectory(id));
  if (!reader.ok()) {
    options_.report(id, reader.status());
    clones_.AddSuspect(id);
    return;  // they are as their records say, and not ready, until the volume says otherwise
  }
  for (const volume::SnapshotInfo& info : (*reader)->snapshots()) {
    if (info.id.starts_with(CloneAttempts::kPrefix)) clones_.AddSuspect(id);
  }
  for (const Snapshot& snapshot : catalog_->SnapshotsOf(id)) {
    const absl::StatusOr<volume::SnapshotInfo> info = (*reader)->Find(snapshot.id);
    // The volume may have it nevertheless once it has been opened.
    if (!info.ok()) continue;
    if (!snapshot.record.cut.has_value() && IsOfUntakenGroup(snapshot)) continue;
    if (!snapshot.record.cut.has_value() || IsUnknown(*snapshot.record.cut)) {
      const absl::Status recorded = catalog_->RecordCut(snapshot.id, CutOf(*info));
      if (!recorded.ok()) {
        options_.report(id, recorded);
        continue;
      }
    } else if (!IsCut(*info, *snapshot.record.cut)) {
      continue;
    }
    if (info->ready) catalog_->SetSnapshotState(snapshot.id, SnapshotState::kReady);
  }
}

absl::Status Store::Refresh(Snapshot& snapshot) {
  if (snapshot.state == SnapshotState::kReady) return absl::OkStatus();
  // While it is deleted, it is gone from the volume before it is gone from the catalog.
  const absl::StatusOr<KeyLocks::Held> held = locks_.TryShared("snapshot " + snapshot.id);
  if (!held.ok()) return held.status();
  std::optional<Snapshot> current = catalog_->FindSnapshot(snapshot.id);
  if (!current.has_value() || current->state == SnapshotState::kReserved) {
    return absl::NotFoundError("there is no snapshot " + snapshot.id);
  }
  snapshot = *std::move(current);
  if (snapshot.state == SnapshotState::kLost) return Lost(snapshot);
  if (snapshot.state == SnapshotState::kReady) return absl::OkStatus();
  const absl::StatusOr<volume::SnapshotInfo> info =
      access_.FindSnapshot(snapshot.volume_id, snapshot.id);
  if (!info.ok() && !absl::IsNotFound(info.status())) return absl::OkStatus();  // not known now
  if (info.ok() && IsUnknown(*snapshot.record.cut)) {
    const absl::Status recorded = catalog_->RecordCut(snapshot.id, CutOf(*info));
    if (!recorded.ok()) return recorded;
    snapshot.record.cut = CutOf(*info);
  }
  if (!info.ok() || !IsCut(*info, *snapshot.record.cut)) {
    snapshot.state = SnapshotState::kLost;
    options_.report(snapshot.volume_id, Lost(snapshot));
  } else if (info->ready) {
    snapshot.state = SnapshotState::kReady;
  }
  catalog_->SetSnapshotState(snapshot.id, snapshot.state);
  return snapshot.state == SnapshotState::kLost ? Lost(snapshot) : absl::OkStatus();
}

absl::StatusOr<Snapshot> Store::GetSnapshot(const std::string& id) {
  std::optional<Snapshot> snapshot = catalog_->FindSnapshot(id);
  if (!snapshot.has_value()) return catalog_->Absent(id);
  if (absl::Status fresh = Refresh(*snapshot); !fresh.ok()) return fresh;
  return *std::move(snapshot);
}

// Requires: no other call is at the snapshot.
// What was cut before the driver was killed, or could not be recorded, stays: the client may call
// again. Otherwise the name is free.
absl::Status Store::SettleReserved(const Snapshot& snapshot) {
  if (IsOfUntakenGroup(snapshot)) return RemoveSnapshot(snapshot, std::nullopt);
  const absl::StatusOr<volume::SnapshotInfo> info =
      access_.FindSnapshot(snapshot.volume_id, snapshot.id);
  if (info.ok()) return catalog_->RecordCut(snapshot.id, CutOf(*info));
  if (!absl::IsNotFound(info.status())) return info.status();
  return catalog_->DropSnapshot(snapshot.id);
}

// Frees the name for another volume, if it is only reserved.
absl::Status Store::ReleaseName(const Snapshot& snapshot) {
  const absl::Status taken =
      absl::AlreadyExistsError("a snapshot of this name is of another volume");
  if (snapshot.state != SnapshotState::kReserved) return taken;
  const absl::StatusOr<KeyLocks::Held> held = locks_.TryShared("volume " + snapshot.volume_id);
  if (!held.ok()) return held.status();
  const absl::StatusOr<KeyLocks::Held> id_held = locks_.TryAlone("snapshot " + snapshot.id);
  if (!id_held.ok()) return id_held.status();
  if (!catalog_->FindSnapshot(snapshot.id).has_value()) return absl::OkStatus();
  if (absl::Status settled = SettleReserved(snapshot); !settled.ok()) return settled;
  return catalog_->FindSnapshot(snapshot.id).has_value() ? taken : absl::OkStatus();
}

// Requires: the name, and a share of the volume and of the snapshot.
absl::Status Store::TakeReserved(const std::string& volume_id, const std::string& id) {
  const std::optional<Volume> volume = catalog_->FindVolume(volume_id);
  if (!volume.has_value() || volume->record.removed) return NoVolume(volume_id);
  if (volume->node.has_value() && flush_) {
    if (absl::Status flushed = flush_(*volume); !flushed.ok()) return flushed;
  }
  // The same one if an earlier call has taken it and could not record it.
  const absl::StatusOr<volume::SnapshotInfo> info = access_.TakeSnapshot(volume_id, id);
  if (!info.ok()) return info.status();
  if (absl::Status recorded = catalog_->RecordCut(id, CutOf(*info)); !recorded.ok()) {
    return recorded;
  }
  if (info->ready) catalog_->SetSnapshotState(id, SnapshotState::kReady);
  return absl::OkStatus();
}

absl::StatusOr<Snapshot> Store::CreateSnapshot(const std::string& volume_id,
                                               const std::string& name) {
  if (absl::Status valid = CheckName(name); !valid.ok()) return valid;
  const absl::StatusOr<KeyLocks::Held> name_held = locks_.TryAlone("snapshot name " + name);
  if (!name_held.ok()) return name_held.status();
  std::optional<Snapshot> found = catalog_->FindSnapshotByName(name);
  if (found.has_value() && found->volume_id != volume_id) {
    if (absl::Status released = ReleaseName(*found); !released.ok()) return released;
    found.reset();
  }
  if (found.has_value() && found->state != SnapshotState::kReserved) {
    if (absl::Status fresh = Refresh(*found); !fresh.ok()) return fresh;
    return *std::move(found);
  }
  const absl::StatusOr<KeyLocks::Held> held = locks_.TryShared("volume " + volume_id);
  if (!held.ok()) return held.status();
  const std::optional<Volume> volume = catalog_->FindVolume(volume_id);
  if (!volume.has_value() || volume->record.removed) return NoVolume(volume_id);
  if (volume->record.view) return OnlyRead();
  std::string id;
  if (found.has_value()) {
    id = found->id;
  } else {
    absl::StatusOr<std::string> reserved = catalog_->ReserveSnapshot(volume_id, name);
    if (!reserved.ok()) return reserved.status();
    id = *std::move(reserved);
  }
  const absl::StatusOr<KeyLocks::Held> id_held = locks_.TryShared("snapshot " + id);
  if (!id_held.ok()) return id_held.status();
  // Before the locks were held, another call may have dropped or recorded it.
  const std::optional<Snapshot> current = catalog_->FindSnapshot(id);
  if (!current.has_value() || current->state != SnapshotState::kReserved) {
    return absl::AbortedError("another operation is pending for snapshot " + id);
  }
  if (absl::Status taken = TakeReserved(volume_id, id); !taken.ok()) return taken;
  return *catalog_->FindSnapshot(id);
}

// Requires: the snapshot alone, and a share of its volume.
absl::Status Store::RemoveSnapshot(const Snapshot& snapshot,
                                   const std::optional<volume::MarkLimits>& marks) {
  if (absl::Status deleted = access_.DeleteSnapshot(snapshot.volume_id, snapshot.id, marks);
      !deleted.ok()) {
    return deleted;
  }
  return catalog_->DropSnapshot(snapshot.id);
}

absl::Status Store::DeleteSnapshot(const std::string& id) {
  const std::optional<Snapshot> snapshot = catalog_->FindSnapshot(id);
  if (!snapshot.has_value()) return OkIfNotFound(catalog_->Absent(id));
  // One whose group's record is damaged can go alone.
  if (catalog_->FindGroup(snapshot->record.group).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("snapshot ", id, " is a member of group snapshot ", snapshot->record.group,
                     "; delete the group snapshot"));
  }
  {
    const absl::StatusOr<KeyLocks::Held> held = locks_.TryShared("volume " + snapshot->volume_id);
    if (!held.ok()) return held.status();
    const absl::StatusOr<KeyLocks::Held> id_held = locks_.TryAlone("snapshot " + id);
    if (!id_held.ok()) return id_held.status();
    if (!catalog_->FindSnapshot(id).has_value()) return absl::OkStatus();
    if (absl::Status removed = RemoveSnapshot(*snapshot, options_.marks); !removed.ok()) {
      return removed;
    }
  }
  RemoveIfUnused(snapshot->volume_id);
  return absl::OkStatus();
}

}  // namespace cbt::driver

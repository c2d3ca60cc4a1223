// Clones of volumes, and what is tidied up without a caller.
#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "programs/driver/state/errors.h"
#include "programs/driver/state/store.h"
#include "programs/volume/snapshot_reader.h"

namespace cbt::driver {
namespace {

constexpr std::chrono::milliseconds kCopyPoll{20};
// Checks per wait limit of an attempt whether it is over.
constexpr int kLooks = 10;

}  // namespace

// A hidden snapshot of the source, complete. UNAVAILABLE: call again.
absl::StatusOr<volume::SnapshotInfo> Store::CopyForClone(const Volume& source,
                                                         const std::string& snapshot) {
  if (source.node.has_value() && flush_) {
    if (absl::Status flushed = flush_(source); !flushed.ok()) return flushed;
  }
  // The same one in each call of the attempt; if it was lost in between, a newer one.
  absl::StatusOr<volume::SnapshotInfo> info = access_.TakeSnapshot(source.id, snapshot);
  const auto latest = std::chrono::steady_clock::now() + options_.copy_wait;
  while (info.ok() && !info->ready) {
    if (std::chrono::steady_clock::now() >= latest) {
      return absl::UnavailableError("the volume is being copied; call again");
    }
    std::this_thread::sleep_for(kCopyPoll);
    info = access_.FindSnapshot(source.id, snapshot);
    if (absl::IsNotFound(info.status())) {
      return absl::UnavailableError("the volume could not be copied; call again");
    }
  }
  return info;
}

absl::StatusOr<Volume> Store::MakeClone(const VolumeRequest& request,
                                        const CloneAttempts::IsGone& is_gone) {
  const std::string& id = request.source.id;
  const absl::StatusOr<KeyLocks::Held> held = locks_.TryShared("volume " + id);
  if (!held.ok()) return held.status();
  // Not before: a volume that is deleted meanwhile has lost its data.
  const std::optional<Volume> source = catalog_->FindVolume(id);
  if (!source.has_value() || source->record.removed) return NoVolume(id);
  if (source->record.view) return CloneView(request, *source);
  // Before a copy that would be of no use.
  const absl::StatusOr<uint64_t> capacity = ChooseCapacity(request.range, source->record.capacity);
  if (!capacity.ok()) return capacity.status();
  absl::StatusOr<CloneAttempts::Call> call = clones_.Join(request.name, id, is_gone);
  if (!call.ok()) return call.status();
  const std::string snapshot = call->snapshot();
  const absl::StatusOr<volume::SnapshotInfo> info = CopyForClone(*source, snapshot);
  if (!info.ok()) return info.status();
  absl::StatusOr<Volume> made;
  const absl::StatusOr<std::unique_ptr<volume::SnapshotReader>> reader =
      volume::SnapshotReader::Open(catalog_->VolumeDirectory(id));
  if (!reader.ok()) {
    made = reader.status();
  } else if (const absl::StatusOr<std::string> image = (*reader)->PathOf(snapshot); image.ok()) {
    made = MakeVolume(request, info->size, *image);
  } else {
    made = image.status();
  }
  if (absl::Status deleted = access_.DeleteSnapshot(id, snapshot); !deleted.ok()) {
    options_.report(id, deleted);
    clones_.AddSuspect(id);
  }
  if (!made.ok()) {
    call->End();
    return made;
  }
  // No client knows of it, so it must not be the answer of a call that comes much later.
  if (call->ClientIsGone()) return absl::CancelledError("the volume is there; call again");
  if (absl::Status claimed = catalog_->ClaimVolume(made->id); !claimed.ok()) return claimed;
  call->End();
  made->claimed = true;
  return made;
}

// Nothing writes to a view: its data needs no hidden snapshot, and an answer that comes late is still
// right.
absl::StatusOr<Volume> Store::CloneView(const VolumeRequest& request, const Volume& view) {
  absl::StatusOr<Volume> made =
      MakeVolume(request, view.record.capacity, catalog_->paths().ViewFile(view.id));
  if (!made.ok()) return made;
  if (absl::Status claimed = catalog_->ClaimVolume(made->id); !claimed.ok()) return claimed;
  made->claimed = true;
  return made;
}

// Removes a clone that no client has got. Requires: the lock of its name, or no other thread.
absl::Status Store::RemoveUnclaimed(const std::string& id) {
  const absl::StatusOr<KeyLocks::Held> held = LockVolume(id);
  if (!held.ok()) return held.status();
  const std::optional<Volume> volume = catalog_->FindVolume(id);
  if (!volume.has_value() || volume->claimed) return absl::OkStatus();
  // Somebody uses it nevertheless.
  if (volume->node.has_value() || volume->snapshots > 0) return catalog_->ClaimVolume(id);
  return RemoveVolume(id);
}

// Runs on a thread of its own.
void Store::KeepTidy() {
  const std::chrono::milliseconds pause = options_.clone_patience / kLooks;
  std::unique_lock lock(tidy_mutex_);
  while (!stopped_.wait_for(lock, pause, [this] { return stopping_; })) {
    lock.unlock();
    try {
      Tidy();
    } catch (const std::bad_alloc&) {
      // There may be memory the next time.
    }
    lock.lock();
  }
}

void Store::Tidy() {
  SettleGroups();
  clones_.EndOld();
  for (const std::string& volume : clones_.suspects()) RemoveStrays(volume);
  for (const Volume& volume : catalog_->AllVolumes()) {
    if (volume.claimed) continue;
    const absl::StatusOr<KeyLocks::Held> held =
        locks_.TryAlone("volume name " + volume.record.name);
    if (!held.ok() || clones_.Has(volume.record.name)) continue;
    if (absl::Status gone = RemoveUnclaimed(volume.id); !gone.ok()) {
      options_.report(volume.id, gone);
    }
  }
  std::set<std::string> removed;
  {
    const std::lock_guard lock(tidy_mutex_);
    removed = removed_;
  }
  for (const std::string& volume : removed) DiscardRemoved(volume);
}

// Deletes the hidden snapshots of the volume that no attempt needs. What can't be done now is tried
// again later.
void Store::RemoveStrays(const std::string& volume_id) {
  const absl::StatusOr<KeyLocks::Held> held = locks_.TryShared("volume " + volume_id);
  if (!held.ok()) {
    clones_.AddSuspect(volume_id);
    return;
  }
  // From here on others may suspect it again.
  clones_.RemoveSuspect(volume_id);
  if (!catalog_->FindVolume(volume_id).has_value()) return;
  const absl::StatusOr<std::unique_ptr<volume::SnapshotReader>> reader =
      volume::SnapshotReader::Open(catalog_->VolumeDirectory(volume_id));
  if (!reader.ok()) {
    clones_.AddSuspect(volume_id);
    return;
  }
  for (const volume::SnapshotInfo& info : (*reader)->snapshots()) {
    if (!info.id.starts_with(CloneAttempts::kPrefix) || clones_.Uses(info.id)) continue;
    if (absl::Status deleted = access_.DeleteSnapshot(volume_id, info.id); !deleted.ok()) {
      options_.report(volume_id, deleted);
      clones_.AddSuspect(volume_id);
    }
  }
}

void Store::AddRemoved(const std::string& volume_id) {
  const std::lock_guard lock(tidy_mutex_);
  removed_.insert(volume_id);
}

// Whether no snapshot of the volume needs its data any more.
bool Store::AllSettled(const std::string& volume_id) {
  std::vector<Snapshot> snapshots = catalog_->SnapshotsOf(volume_id);
  return std::all_of(snapshots.begin(), snapshots.end(), [this](Snapshot& snapshot) {
    Refresh(snapshot).IgnoreError();
    return snapshot.state == SnapshotState::kReady || snapshot.state == SnapshotState::kLost;
  });
}

// Releases the data of a removed volume, which only a snapshot that is being copied still needs.
void Store::DiscardRemoved(const std::string& volume_id) {
  const absl::StatusOr<KeyLocks::Held> held = LockVolume(volume_id);
  if (!held.ok()) return;  // later
  const std::optional<Volume> volume = catalog_->FindVolume(volume_id);
  if (volume.has_value() && volume->record.removed) {
    if (!AllSettled(volume_id)) return;
    if (absl::Status freed = access_.Discard(volume_id); !freed.ok()) {
      options_.report(volume_id, freed);
      return;
    }
  }
  const std::lock_guard lock(tidy_mutex_);
  removed_.erase(volume_id);
}

}  // namespace cbt::driver

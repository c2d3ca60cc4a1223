// Snapshots, growth and reverting of an open volume.
//
// What exists is decided by files: a snapshot is there once its file has its name in snapshots/ or
// its copy has begun, and gone once that is removed. Chain and tracker follow: FinishEpoch() and
// RemoveHidden() bring them in line, now, at the next call, or at the next Open().
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "programs/volume/file_copy.h"
#include "programs/volume/revert_file.h"
#include "programs/volume/volume_core.h"
#include "programs/volume/volume_tracker.h"

namespace cbt::volume {

absl::Status TrackedVolume::Core::FinishEpoch() {
  const std::vector<ChangeTracker::Epoch> epochs = tracker_->epochs();
  if (epochs.size() < 2) return absl::OkStatus();
  const std::string& name = epochs[1].base;
  if (!epochs[0].closed) {
    const absl::StatusOr<bool> has = files_.Has(name);
    if (!has.ok()) return has.status();
    if (!*has) return tracker_->CancelEpoch();
  }
  const absl::StatusOr<ChangeMap> map = tracker_->CloseEpoch();
  if (!map.ok()) return map.status();
  if (!history_.chain().Contains(name) || !history_.HasRecord(name)) {
    const absl::StatusOr<SnapshotInfo> info = files_.InfoOf(name);
    if (!info.ok() && !absl::IsNotFound(info.status())) return info.status();
    absl::Status status =
        history_.Append(*map, name, info.ok() ? std::optional(*info) : std::nullopt);
    if (!status.ok()) return status;
  }
  return tracker_->Acknowledge(map->identity());
}

WriteHold::WriteHold(WriteGate& gate) : gate_(&gate) { gate_->Hold(); }

WriteHold::~WriteHold() {
  if (gate_ != nullptr) gate_->Open();
}

absl::StatusOr<WriteHold> TrackedVolume::Core::HoldWrites() {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  // What is under way may change the data without a write.
  const std::lock_guard<std::mutex> admin(admin_);
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  return WriteHold(gate_);
}

absl::StatusOr<SnapshotInfo> TrackedVolume::Core::TakeSnapshot(const std::string& id) {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  if (absl::Status status = CheckSnapshotId(id); !status.ok()) return status;
  const std::lock_guard<std::mutex> admin(admin_);
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  if (absl::Status status = FinishEpoch(); !status.ok()) return status;
  if (absl::StatusOr<SnapshotRecord> record = history_.Find(id); record.ok()) {
    return std::move(record->info);
  }

  // Dirty pages are written now, so that few are left for later.
  if (absl::Status status = data_.Sync(); !status.ok()) return status;
  const std::string name = NameFor(history_.chain(), id);
  if (absl::Status status = tracker_->OpenEpoch(name); !status.ok()) {
    FinishEpoch().IgnoreError();  // repeated by the next call
    return status;
  }
  // Once more what was written meanwhile. Cloning would write it while writes are held. And a copy
  // that continues after a loss of power takes from `data` what is in this snapshot: no write that
  // counts before it only may be lost.
  absl::Status taken = data_.Sync();
  absl::StatusOr<bool> cloned = false;
  if (taken.ok() && !options_.always_copy && !cannot_clone_) {
    cloned = files_.Clone(name, data_.number());
    taken = cloned.status();
    if (taken.ok()) cannot_clone_ = !*cloned;
  }
  if (taken.ok() && !*cloned) taken = files_.BeginCopy(name, capacity(), data_.number());
  if (taken.ok()) taken = files_.SyncNames();
  if (absl::Status finished = FinishEpoch(); taken.ok()) taken = finished;
  if (taken.ok()) {
    if (absl::Status status = history_.RemoveHidden(); !status.ok()) NoteError(status);
  }
  // Only now: a copy that fills the disk must not take the room of the chain's files.
  worker_.SetCopies(files_.copies());
  if (!taken.ok()) return taken;
  replaced_ = absl::OkStatus();
  absl::StatusOr<SnapshotRecord> record = history_.Find(id);
  if (!record.ok()) return absl::InternalError("the snapshot is not in the chain");
  // From here on the id means this one.
  if (absl::Status status = history_.kept_marks().Remove(id); !status.ok()) NoteError(status);
  return std::move(record->info);
}

absl::Status TrackedVolume::Core::DeleteSnapshot(const std::string& id,
                                                 const std::optional<MarkLimits>& marks) {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  if (absl::Status status = CheckSnapshotId(id); !status.ok()) return status;
  const std::lock_guard<std::mutex> admin(admin_);
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  // It may be the one that could not be brought into the chain; then it has no record.
  const absl::Status finished = FinishEpoch();
  std::string name = id;
  if (const absl::StatusOr<SnapshotRecord> record = history_.Find(id); record.ok()) {
    name = record->name;
  } else if (finished.ok()) {
    return absl::OkStatus();
  } else if (const auto epochs = tracker_->epochs();
             epochs.size() == 2 && IdOf(epochs[1].base) == id) {
    name = epochs[1].base;
  }
  VolumeMarks& kept = history_.kept_marks();
  bool marked = marks.has_value() && marks->count > 0 && history_.chain().Contains(name);
  if (marked) {
    // Deleting a snapshot must not fail for want of room for its mark.
    const absl::Status written = kept.Write(name);
    if (!written.ok()) NoteError(written);
    marked = written.ok();
  }
  if (absl::Status status = DropFiles(name); !status.ok()) return status;
  if (marked) kept.Add(history_.chain(), name);
  absl::Status status = FinishEpoch();
  if (marks.has_value()) {
    const absl::Status limited = kept.Limit(history_.chain(), *marks, Now());
    if (!limited.ok()) NoteError(limited);
  }
  if (status.ok()) status = history_.RemoveHidden();
  if (!status.ok()) NoteError(status);
  return absl::OkStatus();
}

absl::Status TrackedVolume::Core::DropFiles(const std::string& name) {
  const std::string dropped = name;  // it may be the copy's own
  if (absl::Status status = files_.Remove(dropped); !status.ok()) return status;
  worker_.SetCopies(files_.copies());
  history_.EraseRecord(dropped);
  return absl::OkStatus();
}

absl::Status TrackedVolume::Core::DropCopy(const std::shared_ptr<SnapshotCopy>& copy) {
  if (absl::Status status = DropFiles(copy->name()); !status.ok()) return status;
  absl::Status status = FinishEpoch();
  if (status.ok()) status = history_.RemoveHidden();
  if (!status.ok()) NoteError(status);
  return absl::OkStatus();
}

// A tracker has one geometry, so a volume that grows gets a new one that begins with everything
// that the old one knows; the manifest says which counts.
// Requires: the gate is held, and one epoch is open.
absl::Status TrackedVolume::Core::SwitchTracker(const VolumeManifest& next,
                                                std::unique_ptr<ChangeTracker> tracker) {
  const absl::StatusOr<ChangeMap> changes = tracker_->Changes();
  if (!changes.ok()) return changes.status();
  if (absl::Status status = MarkAll(*changes, *tracker); !status.ok()) return status;
  if (absl::Status status = tracker->Checkpoint(); !status.ok()) return status;
  if (absl::Status status = WriteVolumeManifest(*directory_, next); !status.ok()) {
    // Either manifest may be on disk, and no write may be in one tracker only.
    if (!WriteVolumeManifest(*directory_, manifest_).ok()) open_.store(false);
    return status;
  }
  manifest_ = next;
  capacity_.store(next.capacity, std::memory_order_release);
  std::swap(tracker_, tracker);
  return absl::OkStatus();
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
  absl::StatusOr<std::unique_ptr<ChangeTracker>> tracker =
      MakeTracker(*directory_, next, tracker_->epochs().front().base);
  absl::Status status = tracker.status();
  if (status.ok()) status = data_.Resize(capacity);
  if (status.ok()) status = data_.Sync();
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
  if (absl::Status cut = data_.Resize(before); !cut.ok()) NoteError(cut);
  return status;
}

absl::Status TrackedVolume::Core::Attach() {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  const std::lock_guard<std::mutex> lock(users_mutex_);
  if (reverting_.load()) return Reverting();
  ++users_;
  return absl::OkStatus();
}

void TrackedVolume::Core::Detach() noexcept {
  const std::lock_guard<std::mutex> lock(users_mutex_);
  --users_;
}

// Going back to a snapshot. What may differ from it is known: the maps since it, and what was
// written since the newest one. All of it is marked first, then the file REVERT names the snapshot,
// then the data is made that of the snapshot, and REVERT is removed. Whatever interrupts that, the
// next Open() finds REVERT and begins again: neither the snapshot nor the maps have changed, and a
// mark that was made is never lost.

// Requires: one epoch is open: that since the newest snapshot.
absl::Status TrackedVolume::Core::MarkSince(const std::string& name) {
  const ChangeChain& chain = history_.chain();
  const absl::StatusOr<std::unique_ptr<ExtentCursor>> delta = chain.Delta(name, chain.newest().id);
  if (!delta.ok()) return delta.status();
  written_.store(true);
  return ForEachBatch(**delta, [this](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      absl::Status status = tracker_->Mark(batch[i]);
      if (status.ok()) continue;
      worker_.AskForRepair(status);
      return status;
    }
    return absl::OkStatus();
  });
}

// All that may differ from the snapshot is marked, and REVERT is on disk.
absl::Status TrackedVolume::Core::FinishRevert(int snapshot, uint64_t size) {
  const GateHold hold(gate_);
  const absl::StatusOr<ChangeMap> changes = tracker_->Changes();
  if (!changes.ok()) return changes.status();
  const std::unique_ptr<ExtentCursor> cursor = MakeChangeMapCursor(*changes);
  absl::Status status = ForEachBatch(*cursor, [&](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      int error = files_.Preserve(batch[i]);
      if (error == 0) error = RestoreRange(snapshot, size, data_.number(), batch[i]);
      if (error != 0) return data_.ErrorOf(error);
    }
    return absl::OkStatus();
  });
  if (status.ok()) status = data_.Sync();
  if (status.ok()) status = RemoveRevert(*directory_);
  return status;
}

// Called by Open(), before anybody else sees the volume.
absl::Status TrackedVolume::Core::ResumeRevert() {
  const absl::StatusOr<std::string> name = ReadRevert(*directory_);
  if (absl::IsNotFound(name.status())) return absl::OkStatus();
  if (!name.ok()) return name.status();
  const std::vector<SnapshotRecord>& records = history_.records();
  const auto record = std::find_if(records.begin(), records.end(), [&](const auto& each) {
    return each.info.ready && each.name == *name;
  });
  if (record == records.end()) {
    return absl::DataLossError(absl::StrCat(directory_->Shown(kDataName),
                                            ": is half way back to \"", *name,
                                            "\", a snapshot that is gone"));
  }
  const absl::StatusOr<OwnedDescriptor> snapshot = files_.OpenFile(*name, record->info.size);
  if (!snapshot.ok()) return snapshot.status();
  if (absl::Status status = MarkSince(*name); !status.ok()) return status;
  return FinishRevert(snapshot->number(), record->info.size);
}

// Requires: no user is attached. Sets open_ to false if `data` may be a mixture.
absl::Status TrackedVolume::Core::RevertUnused(const std::string& id) {
  const absl::StatusOr<SnapshotRecord> record = history_.FindReady(id);
  if (!record.ok()) return record.status();
  const absl::StatusOr<OwnedDescriptor> snapshot = files_.OpenFile(record->name, record->info.size);
  if (!snapshot.ok()) return snapshot.status();
  if (absl::Status status = data_.Sync(); !status.ok()) return status;
  if (absl::Status status = MarkSince(record->name); !status.ok()) return status;
  open_.store(false);
  absl::Status status = WriteRevert(*directory_, record->name);
  // REVERT may be there or not.
  const bool begun = status.ok() || !RemoveRevert(*directory_).ok();
  if (status.ok()) status = FinishRevert(snapshot->number(), record->info.size);
  if (status.ok() || !begun) open_.store(true);
  return status;
}

absl::Status TrackedVolume::Core::Revert(const std::string& id) {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  if (absl::Status status = CheckSnapshotId(id); !status.ok()) return status;
  const std::lock_guard<std::mutex> open(close_);
  const std::lock_guard<std::mutex> admin(admin_);
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  if (gate_.held()) {
    return absl::FailedPreconditionError(
        "writes to the volume are held, for snapshots of one moment: repeat this after them");
  }
  if (absl::Status status = FinishEpoch(); !status.ok()) return status;
  {
    const std::lock_guard<std::mutex> lock(users_mutex_);
    if (users_ > 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the volume has ", users_,
          " connections, and what their clients remember would not go back: disconnect them"));
    }
    reverting_.store(true);
  }
  const absl::Cleanup whole = [this] {
    if (open_.load()) reverting_.store(false);
  };
  const absl::Status status = RevertUnused(id);
  if (open_.load()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(),
                                   ": the volume is half way back to the snapshot; restart its "
                                   "server, which finishes that"));
}

}  // namespace cbt::volume

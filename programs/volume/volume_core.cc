// Opening and closing, I/O, questions and background work of an open volume.
#include "programs/volume/volume_core.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "programs/volume/data_stamp.h"
#include "programs/volume/file_copy.h"
#include "programs/volume/volume_tracker.h"

namespace cbt::volume {
namespace {

absl::Status NotFast() {
  return absl::UnimplementedError("the range can't be zeroed without writing or copying data now");
}

}  // namespace

absl::Status TrackedVolume::Core::OpenParts() {
  absl::StatusOr<Directory> directory = Directory::Open(path_);
  if (!directory.ok()) return directory.status();
  absl::StatusOr<std::unique_ptr<DirectoryClaim>> claim = DirectoryClaim::Take(*directory);
  if (!claim.ok()) return claim.status();
  claim_ = *std::move(claim);
  directory_ = std::make_unique<const Directory>(*directory);
  absl::StatusOr<VolumeManifest> manifest = ReadVolumeManifest(*directory);
  if (!manifest.ok()) return manifest.status();
  manifest_ = *std::move(manifest);
  capacity_.store(manifest_.capacity);

  // Everything but the manifest has to be there.
  const auto lost = [](absl::Status status) {
    return absl::IsNotFound(status) ? absl::DataLossError(status.message()) : status;
  };
  if (absl::Status status = data_.Open(*directory); !status.ok()) return lost(status);
  if (absl::Status status = CompareWithClosed(); !status.ok()) return status;
  if (absl::Status status = data_.CutTo(manifest_.capacity); !status.ok()) return status;
  if (absl::Status status = files_.Open(*directory); !status.ok()) return lost(status);
  if (absl::Status status = history_.OpenMarks(*directory); !status.ok()) return status;
  if (absl::Status status = history_.OpenChain(*directory); !status.ok()) return lost(status);
  absl::StatusOr<std::unique_ptr<ChangeTracker>> tracker = OpenTracker(*directory, manifest_);
  if (!tracker.ok()) return lost(tracker.status());
  tracker_ = *std::move(tracker);
  return replaced_.ok() ? absl::OkStatus() : tracker_->Mark({0, manifest_.capacity});
}

// The tracker knows of this program's writes alone.
absl::Status TrackedVolume::Core::CompareWithClosed() {
  const absl::StatusOr<DataStamp> closed = ReadClosed(*directory_);
  // It was not closed: nothing is known about the data. The tracker still has every write.
  if (absl::IsNotFound(closed.status())) return absl::OkStatus();
  const bool unreadable =
      absl::IsDataLoss(closed.status()) || absl::IsUnimplemented(closed.status());
  if (!closed.ok() && !unreadable) return closed.status();
  const absl::StatusOr<DataStamp> now = ReadStamp(*directory_, data_.number());
  if (!now.ok()) return now.status();
  if (closed.ok() && *closed == *now) return absl::OkStatus();
  replaced_ = absl::AbortedError(absl::StrCat(
      directory_->Shown(kDataName),
      ": was changed while the volume was closed, so everything counts as changed since the newest "
      "snapshot"));
  return absl::OkStatus();
}

// The snapshots in the order of the chain, with the copies. A copy that the chain does not have was
// never begun.
absl::Status TrackedVolume::Core::OpenHistory() {
  const ChangeChain& chain = history_.chain();
  absl::StatusOr<std::vector<SnapshotRecord>> complete = ReadSnapshots(chain, files_.files());
  if (!complete.ok()) return complete.status();
  std::vector<SnapshotRecord> records;
  SnapshotFiles::Copies copies;
  auto next = complete->begin();
  for (const ChainSnapshot& entry : chain.snapshots()) {
    if (next != complete->end() && next->name == entry.id) {
      records.push_back(std::move(*next++));
      continue;
    }
    for (const std::shared_ptr<SnapshotCopy>& copy : files_.copies()) {
      if (copy->name() != entry.id || copy->info().size != entry.capacity) continue;
      records.push_back({entry.id, copy->info()});
      copies.push_back(copy);
    }
  }
  DropSuperseded(records);
  history_.SetRecords(std::move(records));
  std::erase_if(copies, [this](const std::shared_ptr<SnapshotCopy>& copy) {
    return !history_.HasRecord(copy->name());
  });
  return files_.KeepCopies(std::move(copies));
}

absl::Status TrackedVolume::Core::Open() {
  if (absl::Status status = OpenParts(); !status.ok()) return status;
  const auto note = [this](const absl::Status& status) { NoteError(status); };
  if (absl::Status status = files_.ResumeCopies(data_.number(), replaced_, note); !status.ok()) {
    return status;
  }
  // Of a Create() that was interrupted behind the manifest: the volume is in use from here on.
  if (!directory_->Remove(kUnfinishedName)) {
    return FileError(directory_->Shown(kUnfinishedName), errno);
  }
  // What a change of the data demanded is on disk.
  if (!directory_->Remove(kClosedName)) return FileError(directory_->Shown(kClosedName), errno);
  if (absl::Status status = directory_->Sync(); !status.ok()) return status;
  if (absl::Status status = FinishEpoch(); !status.ok()) return status;
  if (absl::Status status = OpenHistory(); !status.ok()) return status;
  files_.RemoveSuperseded(history_.records(), note);
  if (absl::Status status = history_.LoadMarks(note); !status.ok()) return status;
  if (absl::Status status = history_.RemoveHidden(); !status.ok()) NoteError(status);
  if (!replaced_.ok()) NoteError(replaced_);
  if (absl::Status status = ResumeRevert(); !status.ok()) return status;
  open_.store(true);
  worker_.SetCopies(files_.copies());
  worker_.Start(Background());
  return absl::OkStatus();
}

absl::Status TrackedVolume::Core::Close() {
  if (!process_.IsOurs()) return CopiedByFork("the volume");
  const std::lock_guard<std::mutex> only(close_);
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  worker_.Stop();
  const std::lock_guard<std::mutex> admin(admin_);
  gate_.Shut();
  absl::Status status = data_.Sync();
  if (absl::Status closed = tracker_->Close(); status.ok()) status = closed;
  if (status.ok()) status = WriteClosed(*directory_, data_.number());
  open_.store(false);
  history_.Close();
  tracker_.reset();
  files_.Close();
  claim_.reset();
  return status;
}

absl::Status TrackedVolume::Core::CheckUsable() const {
  if (!process_.IsOurs()) return CopiedByFork("the volume");
  if (!open_.load(std::memory_order_relaxed)) {
    if (reverting_.load()) return Reverting();
    return absl::FailedPreconditionError("the volume is closed");
  }
  return absl::OkStatus();
}

absl::Status TrackedVolume::Core::Reverting() {
  return absl::UnavailableError(
      "the volume is going back to a snapshot; if that has failed, restart its server");
}

absl::Status TrackedVolume::Core::CheckInside(Extent extent) const {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  const uint64_t capacity = this->capacity();
  if (extent.offset > capacity || extent.length > capacity - extent.offset) {
    return absl::OutOfRangeError(absl::StrCat("extent (offset ", extent.offset, ", length ",
                                              extent.length, ") extends past the capacity of ",
                                              capacity, " bytes"));
  }
  return absl::OkStatus();
}

template <typename Change>
absl::Status TrackedVolume::Core::Changing(Extent extent, Change change, ZeroCost cost) {
  // Before the gate, which another thread may have held when a forked child began.
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  const GatePass pass(gate_);
  if (!pass.inside()) return absl::FailedPreconditionError("the volume is closed");
  if (absl::Status status = CheckInside(extent); !status.ok()) return status;
  if (extent.length == 0) return absl::OkStatus();
  // A snapshot that is being copied gets what the range holds first.
  if (cost == ZeroCost::kFastOnly && files_.copying()) return NotFast();
  absl::StatusOr<TrackedWrite> write = tracker_->Begin(extent);
  if (!write.ok()) {
    worker_.AskForRepair(write.status());
    return write.status();
  }
  if (!written_.load(std::memory_order_relaxed)) written_.store(true, std::memory_order_relaxed);
  int error = files_.Preserve(extent);
  const bool preserved = error == 0;
  if (preserved) error = change();
  write->End();
  if (!preserved) worker_.AskForRepair(files_.ErrorOfCopies(error));
  return error == 0 ? absl::OkStatus() : data_.ErrorOf(error);
}

absl::Status TrackedVolume::Core::Read(uint64_t offset, std::span<uint8_t> out) const {
  if (absl::Status status = CheckInside({offset, out.size()}); !status.ok()) return status;
  return data_.Read(offset, out);
}

absl::Status TrackedVolume::Core::Write(uint64_t offset, std::span<const uint8_t> bytes,
                                        Durability durability) {
  // Not RWF_DSYNC, although it writes less: if it fails, it may have taken the only report of an
  // earlier write's error with it, and looks like a full disk.
  absl::Status status =
      Changing({offset, bytes.size()}, [&] { return data_.Write(offset, bytes); });
  if (status.ok() && durability == Durability::kFlushed) status = data_.Sync();
  return status;
}

absl::Status TrackedVolume::Core::Zero(Extent extent, bool may_trim, Durability durability,
                                       ZeroCost cost) {
  bool slow = false;
  absl::Status status = Changing(
      extent,
      [&] {
        const int error = may_trim ? data_.Punch(extent) : data_.Zero(extent);
        slow = CannotAllocate(error);
        if (!slow || cost == ZeroCost::kFastOnly) return error;
        return data_.WriteZeros(extent);
      },
      cost);
  if (slow && cost == ZeroCost::kFastOnly) return NotFast();
  if (status.ok() && durability == Durability::kFlushed) status = data_.Sync();
  return status;
}

absl::Status TrackedVolume::Core::Trim(Extent extent, Durability durability) {
  absl::Status status = Changing(extent, [&] {
    const int error = data_.Punch(extent);
    return CannotAllocate(error) ? 0 : error;
  });
  if (status.ok() && durability == Durability::kFlushed) status = data_.Sync();
  return status;
}

absl::Status TrackedVolume::Core::Flush() {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  return data_.Sync();
}

absl::StatusOr<std::vector<VolumeExtent>> TrackedVolume::Core::Extents(Extent extent,
                                                                       size_t most) const {
  if (absl::Status status = CheckInside(extent); !status.ok()) return status;
  return data_.Extents(extent, most);
}

absl::StatusOr<SnapshotInfo> TrackedVolume::Core::FindSnapshot(std::string_view id) const {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  absl::StatusOr<SnapshotRecord> record = history_.Find(id);
  if (!record.ok()) return record.status();
  return std::move(record->info);
}

absl::StatusOr<std::string> TrackedVolume::Core::SnapshotPath(std::string_view id) const {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  const absl::StatusOr<SnapshotRecord> record = history_.FindReady(id);
  if (!record.ok()) return record.status();
  return PathOfSnapshot(path_, files_.files(), record->name);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> TrackedVolume::Core::Delta(
    std::string_view base, std::string_view target) const {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  return history_.Delta(base, target);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> TrackedVolume::Core::Allocated(
    std::string_view id) const {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  const absl::StatusOr<SnapshotRecord> record = history_.FindReady(id);
  if (!record.ok()) return record.status();
  return AllocatedIn(files_.files(), record->name, id, granularity());
}

VolumeStatus TrackedVolume::Core::status() const {
  VolumeStatus status;
  if (!process_.IsOurs()) return status;
  const std::lock_guard<std::mutex> admin(admin_);
  const absl::Status usable = CheckUsable();
  if (!usable.ok() && !reverting_.load()) return status;
  status.name = manifest_.name;
  status.capacity = manifest_.capacity;
  status.granularity = manifest_.granularity;
  if (!usable.ok()) {
    status.changed_bytes = status.capacity;
    status.exact = false;
    status.last_error = std::string(usable.message());
    return status;
  }
  status.snapshots = history_.records().size();
  status.copying = files_.copies().size();
  status.marks = history_.marks().size();
  status.exact = replaced_.ok();
  for (const ChangeTracker::Epoch& epoch : tracker_->epochs()) status.exact &= epoch.exact;
  if (const absl::StatusOr<ChangeMap> changes = tracker_->Changes(); changes.ok()) {
    status.changed_bytes = (*changes)->changed_bytes();
  } else {
    // Not known: as much as there may be.
    status.changed_bytes = status.capacity;
    status.exact = false;
  }
  status.clones = files_.clones();
  status.longest_hold_ns = files_.longest_hold_ns();
  status.last_error = worker_.error();
  return status;
}

VolumeWorker::Tasks TrackedVolume::Core::Background() {
  return {.finish = [this](const std::shared_ptr<SnapshotCopy>& copy) { FinishCopy(copy); },
          .repair = [this] { return Repair(); },
          .checkpoint = [this] { Checkpoint(); },
          .interval = std::chrono::seconds(options_.checkpoint_seconds)};
}

void TrackedVolume::Core::FinishCopy(const std::shared_ptr<SnapshotCopy>& copy) {
  absl::Status status = copy->Finish();
  const std::lock_guard<std::mutex> admin(admin_);
  const SnapshotFiles::Copies& copies = files_.copies();
  if (std::find(copies.begin(), copies.end(), copy) == copies.end()) return;  // deleted
  if (status.ok()) status = files_.Publish(*copy);
  if (!status.ok()) {
    NoteError(status);
    files_.RemoveFile(copy->name());
    // If even that fails, its data is never complete, and it can be deleted.
    if (status = DropCopy(copy); !status.ok()) {
      NoteError(status);
      worker_.AskForRepair(status);
      worker_.Drop(copy);
    }
    return;
  }
  history_.SetReady(copy->name());
  files_.Forget(copy);
  worker_.SetCopies(files_.copies());
}

// Brings back what makes every write fail: a log that could not be written, and a copy that could
// not be dropped after it had failed.
absl::Status TrackedVolume::Core::Repair() {
  const std::lock_guard<std::mutex> admin(admin_);
  for (const std::shared_ptr<SnapshotCopy>& copy : SnapshotFiles::Copies(files_.copies())) {
    if (copy->failed() == 0) continue;
    if (absl::Status status = DropCopy(copy); !status.ok()) return status;
  }
  written_.store(false);
  absl::Status status = tracker_->Checkpoint();
  if (!status.ok()) written_.store(true);
  return status;
}

void TrackedVolume::Core::Checkpoint() {
  if (!written_.exchange(false)) return;
  const std::lock_guard<std::mutex> admin(admin_);
  if (absl::Status status = tracker_->Checkpoint(); !status.ok()) {
    written_.store(true);
    NoteError(status);
  }
}

}  // namespace cbt::volume

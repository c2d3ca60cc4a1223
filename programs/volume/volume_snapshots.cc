// Snapshots of an open volume.
//
// What exists is decided by files: a snapshot is there once its file has its name in snapshots/ or
// its copy has begun, and gone once that is removed. Chain and tracker follow: FinishEpoch() and
// RemoveHidden() bring them in line, now, at the next call, or at the next Open().
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "programs/volume/file_copy.h"
#include "programs/volume/volume_core.h"

namespace cbt::volume {
namespace {

int64_t Now() noexcept {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return ToNanoseconds(now);
}

// Holds the gate for a scope, and keeps the longest time for which that was done.
class TimedHold {
 public:
  TimedHold(WriteGate& gate, std::atomic<uint64_t>& longest)
      : longest_(longest), begin_(std::chrono::steady_clock::now()), hold_(std::in_place, gate) {}
  ~TimedHold() {
    hold_.reset();
    const auto held = std::chrono::steady_clock::now() - begin_;
    const auto held_ns =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(held).count());
    longest_.store(std::max(longest_.load(), held_ns));
  }
  TimedHold(const TimedHold&) = delete;
  TimedHold& operator=(const TimedHold&) = delete;

 private:
  std::atomic<uint64_t>& longest_;
  const std::chrono::steady_clock::time_point begin_;
  std::optional<GateHold> hold_;
};

}  // namespace

absl::StatusOr<bool> TrackedVolume::Core::HasFile(const std::string& name) const {
  for (const std::shared_ptr<SnapshotCopy>& copy : copies_) {
    if (copy->name() == name) return true;
  }
  return snapshot_files_->Has(name);
}

absl::StatusOr<SnapshotInfo> TrackedVolume::Core::InfoOf(const std::string& name) const {
  for (const std::shared_ptr<SnapshotCopy>& copy : copies_) {
    if (copy->name() == name) return copy->info();
  }
  return ReadSnapshotFile(*snapshot_files_, name);
}

absl::Status TrackedVolume::Core::FinishEpoch() {
  const std::vector<ChangeTracker::Epoch> epochs = tracker_->epochs();
  if (epochs.size() < 2) return absl::OkStatus();
  const std::string& name = epochs[1].base;
  if (!epochs[0].closed) {
    const absl::StatusOr<bool> has = HasFile(name);
    if (!has.ok()) return has.status();
    if (!*has) return tracker_->CancelEpoch();
  }
  const absl::StatusOr<ChangeMap> map = tracker_->CloseEpoch();
  if (!map.ok()) return map.status();
  const bool recorded = std::any_of(records_.begin(), records_.end(),
                                    [&name](const auto& record) { return record.name == name; });
  if (!chain_->Contains(name) || !recorded) {
    absl::StatusOr<SnapshotInfo> info = InfoOf(name);
    if (!info.ok() && !absl::IsNotFound(info.status())) return info.status();
    const std::unique_lock<std::shared_mutex> lock(chain_mutex_);
    // An Append() that failed only while it was synced has put it into the chain nevertheless.
    if (!chain_->Contains(name)) {
      const auto time = info.ok() ? std::optional(info->created_ns) : std::nullopt;
      if (absl::Status status = chain_->Append(*map, time); !status.ok()) return status;
    }
    if (info.ok() && !recorded) records_.push_back({name, *std::move(info)});
  }
  return tracker_->Acknowledge(map->identity());
}

absl::Status TrackedVolume::Core::RemoveHidden() {
  std::set<std::string_view> kept;
  for (const SnapshotRecord& record : records_) kept.insert(record.name);
  for (const MarkRecord& record : marks_) kept.insert(record.name);
  const std::vector<ChainSnapshot> entries = chain_->snapshots();
  for (size_t i = 0; i + 1 < entries.size(); ++i) {
    if (kept.contains(entries[i].id)) continue;
    const std::unique_lock<std::shared_mutex> lock(chain_mutex_);
    if (absl::Status status = chain_->Remove(entries[i].id); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// What exists as a mark is decided by its file, which is there before the snapshot's goes.
absl::Status TrackedVolume::Core::LoadMarks() {
  absl::StatusOr<std::vector<MarkRecord>> marks = ReadMarks(*chain_, records_, *mark_files_);
  if (!marks.ok()) return marks.status();
  marks_ = *std::move(marks);
  const absl::StatusOr<std::vector<std::string>> files = mark_files_->List();
  if (!files.ok()) return files.status();
  std::set<std::string_view> names;
  for (const MarkRecord& record : marks_) names.insert(record.name);
  for (const std::string& file : *files) {
    if (!names.contains(file) && !mark_files_->Remove(file.c_str())) {
      NoteError(FileError(mark_files_->Shown(file), errno));
    }
  }
  return absl::OkStatus();
}

// False if the moment can't be kept: deleting a snapshot must not fail for want of room.
bool TrackedVolume::Core::WriteMark(const std::string& name) {
  if (!chain_->Contains(name)) return false;
  absl::Status status = mark_files_->Write(name, {}, /*sync=*/true);
  if (!status.ok()) NoteError(status);
  return status.ok();
}

void TrackedVolume::Core::AddMark(const std::string& name) {
  const std::vector<ChainSnapshot> entries = chain_->snapshots();
  const auto place = [&entries](std::string_view each) {
    return std::find_if(entries.begin(), entries.end(),
                        [each](const ChainSnapshot& entry) { return entry.id == each; });
  };
  const auto entry = place(name);
  if (entry == entries.end()) return;
  const std::unique_lock<std::shared_mutex> lock(chain_mutex_);
  const auto at = std::find_if(marks_.begin(), marks_.end(), [&](const MarkRecord& record) {
    return place(record.name) > entry;
  });
  marks_.insert(
      at,
      {name, {.id = std::string(IdOf(name)), .created_ns = entry->time, .size = entry->capacity}});
}

template <typename IsDropped>
void TrackedVolume::Core::DropMarks(IsDropped is_dropped) {
  for (size_t i = 0; i < marks_.size();) {
    const std::string& name = marks_[i].name;
    if (!is_dropped(marks_[i])) {
      ++i;
    } else if (!mark_files_->Remove(name.c_str())) {
      return NoteError(FileError(mark_files_->Shown(name), errno));
    } else {
      const std::unique_lock<std::shared_mutex> lock(chain_mutex_);
      marks_.erase(marks_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

void TrackedVolume::Core::LimitMarks(const MarkLimits& limits) {
  const std::vector<ChainSnapshot> entries = chain_->snapshots();
  const std::vector<uint64_t> bytes = chain_->MapBytes();
  std::map<std::string_view, uint64_t> costs;
  for (size_t i = 0; i + 1 < entries.size(); ++i) costs[entries[i].id] = bytes[i + 1];
  uint64_t left = marks_.size();
  uint64_t total = 0;
  for (const MarkRecord& record : marks_) total += costs[record.name];
  const int64_t oldest = Now() - std::chrono::nanoseconds(limits.age).count();
  // The oldest first, until the rest is within the limits.
  DropMarks([&](const MarkRecord& record) {
    const bool aged = record.mark.created_ns.has_value() && *record.mark.created_ns < oldest;
    if (!aged && left <= limits.count && total <= limits.bytes) return false;
    --left;
    total -= costs[record.name];
    return true;
  });
}

// Requires: admin_.
void TrackedVolume::Core::SetCopies(Copies copies) {
  const TimedHold hold(gate_, longest_hold_ns_);
  copies_ = std::move(copies);
}

// Requires: admin_. The thread that copies works on copies_ from here on. Copying begins once every
// write preserves what it changes: the copy would be of two times otherwise.
void TrackedVolume::Core::ContinueCopies() {
  {
    const std::lock_guard<std::mutex> lock(work_mutex_);
    to_copy_ = copies_;
  }
  work_changed_.notify_all();
}

// False if files can't be cloned here.
absl::StatusOr<bool> TrackedVolume::Core::Clone(const std::string& name) {
  copying_files_->Remove(name.c_str());
  const OwnedDescriptor clone(Retry([&] {
    return ::openat(copying_files_->descriptor(), name.c_str(),
                    O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR | S_IRGRP);
  }));
  if (!clone.has_value()) return FileError(copying_files_->Shown(name), errno);
  int error = 0;
  int64_t created_ns = 0;
  {
    const TimedHold hold(gate_, longest_hold_ns_);
    created_ns = Now();
    error = CloneFile(data_.number(), clone.number());
  }
  const bool cannot = CannotClone(error);
  const timespec created = ToTimespec(created_ns);
  const timespec times[2] = {created, created};
  if (error == 0 && ::futimens(clone.number(), times) != 0) error = errno;
  if (error == 0 && ::fchmod(clone.number(), S_IRUSR | S_IRGRP) != 0) error = errno;
  if (error == 0 && ::fsync(clone.number()) != 0) error = errno;
  if (error == 0 && ::renameat(copying_files_->descriptor(), name.c_str(),
                               snapshot_files_->descriptor(), name.c_str()) != 0) {
    error = errno;
  }
  if (error == 0) {
    clones_.store(true);
    return true;
  }
  copying_files_->Remove(name.c_str());
  if (cannot) return false;
  return FileError(copying_files_->Shown(name), error);
}

absl::Status TrackedVolume::Core::StartCopy(const std::string& name) {
  absl::StatusOr<std::shared_ptr<SnapshotCopy>> copy =
      SnapshotCopy::Begin(*copying_files_, name, capacity(), Now(), data_.number());
  if (!copy.ok()) return copy.status();
  Copies copies = copies_;
  copies.push_back(*std::move(copy));
  SetCopies(std::move(copies));
  return absl::OkStatus();
}

absl::StatusOr<SnapshotInfo> TrackedVolume::Core::TakeSnapshot(const std::string& id) {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  if (absl::Status status = CheckSnapshotId(id); !status.ok()) return status;
  const std::lock_guard<std::mutex> admin(admin_);
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  if (absl::Status status = FinishEpoch(); !status.ok()) return status;
  if (const SnapshotRecord* const record = FindRecord(id); record != nullptr) return record->info;

  // Dirty pages are written now, so that few are left for later.
  if (absl::Status status = Sync(); !status.ok()) return status;
  const std::string name = NameFor(*chain_, id);
  if (absl::Status status = tracker_->OpenEpoch(name); !status.ok()) {
    FinishEpoch().IgnoreError();  // repeated by the next call
    return status;
  }
  // Once more what was written meanwhile. Cloning would write it while writes are held. And a copy
  // that continues after a loss of power takes from `data` what is in this snapshot: no write that
  // counts before it only may be lost.
  absl::Status taken = Sync();
  absl::StatusOr<bool> cloned = false;
  if (taken.ok() && !options_.always_copy && !cannot_clone_) {
    cloned = Clone(name);
    taken = cloned.status();
    if (taken.ok()) cannot_clone_ = !*cloned;
  }
  if (taken.ok() && !*cloned) taken = StartCopy(name);
  // Both names: the snapshot's, and the one that is gone.
  if (taken.ok()) taken = snapshot_files_->Sync();
  if (taken.ok()) taken = copying_files_->Sync();
  if (absl::Status finished = FinishEpoch(); taken.ok()) taken = finished;
  if (taken.ok()) {
    if (absl::Status status = RemoveHidden(); !status.ok()) NoteError(status);
  }
  // Only now: a copy that fills the disk must not take the room of the chain's files.
  ContinueCopies();
  if (!taken.ok()) return taken;
  replaced_ = absl::OkStatus();
  const SnapshotRecord* const record = FindRecord(id);
  if (record == nullptr) return absl::InternalError("the snapshot is not in the chain");
  // From here on the id means this one.
  DropMarks([&id](const MarkRecord& each) { return each.mark.id == id; });
  return record->info;
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
  if (const SnapshotRecord* const record = FindRecord(id); record != nullptr) {
    name = record->name;
  } else if (finished.ok()) {
    return absl::OkStatus();
  } else if (const auto epochs = tracker_->epochs();
             epochs.size() == 2 && IdOf(epochs[1].base) == id) {
    name = epochs[1].base;
  }
  const bool marked = marks.has_value() && marks->count > 0 && WriteMark(name);
  if (absl::Status status = DropFiles(name); !status.ok()) return status;
  if (marked) AddMark(name);
  absl::Status status = FinishEpoch();
  if (marks.has_value()) LimitMarks(*marks);
  if (status.ok()) status = RemoveHidden();
  if (!status.ok()) NoteError(status);
  return absl::OkStatus();
}

// Removes a snapshot's data, and its record.
absl::Status TrackedVolume::Core::DropFiles(std::string name) {
  const auto copy = std::find_if(copies_.begin(), copies_.end(),
                                 [&name](const auto& each) { return each->name() == name; });
  if (copy != copies_.end()) {
    // As long as there are files, a kill brings the copy back, and writers must preserve regions.
    if (!RemoveCopyFiles(*copying_files_, name)) {
      return FileError(copying_files_->Shown(name), errno);
    }
    Copies copies = copies_;
    copies.erase(copies.begin() + (copy - copies_.begin()));
    SetCopies(std::move(copies));
    ContinueCopies();
  } else {
    // This also makes room for what the chain has to write, if the disk is full.
    if (!snapshot_files_->Remove(name.c_str())) {
      return FileError(snapshot_files_->Shown(name), errno);
    }
    if (absl::Status status = snapshot_files_->Sync(); !status.ok()) return status;
  }
  const std::unique_lock<std::shared_mutex> lock(chain_mutex_);
  std::erase_if(records_, [&name](const SnapshotRecord& record) { return record.name == name; });
  return absl::OkStatus();
}

// Drops a snapshot that is being copied.
absl::Status TrackedVolume::Core::DropCopy(const std::shared_ptr<SnapshotCopy>& copy) {
  if (absl::Status status = DropFiles(copy->name()); !status.ok()) return status;
  absl::Status status = FinishEpoch();
  if (status.ok()) status = RemoveHidden();
  if (!status.ok()) NoteError(status);
  return absl::OkStatus();
}

// Gives a copy that is complete its name among the snapshots.
absl::Status TrackedVolume::Core::Publish(const std::shared_ptr<SnapshotCopy>& copy) {
  const std::string& name = copy->name();
  if (::renameat(copying_files_->descriptor(), name.c_str(), snapshot_files_->descriptor(),
                 name.c_str()) != 0) {
    return FileError(copying_files_->Shown(name), errno);
  }
  if (absl::Status status = snapshot_files_->Sync(); !status.ok()) return status;
  // Not before: a copy that is found without its list is dropped. And for good: a later copy may
  // have this name. If it can't be removed, the next Open() or copy removes it.
  copying_files_->Remove(CopiedName(name).c_str());
  return copying_files_->Sync();
}

void TrackedVolume::Core::FinishCopy(const std::shared_ptr<SnapshotCopy>& copy) {
  absl::Status status = copy->Finish();
  const std::lock_guard<std::mutex> admin(admin_);
  if (std::find(copies_.begin(), copies_.end(), copy) == copies_.end()) return;  // deleted
  if (status.ok()) status = Publish(copy);
  if (!status.ok()) {
    NoteError(status);
    snapshot_files_->Remove(copy->name().c_str());
    // If even that fails, its data is never complete, and it can be deleted.
    if (status = DropCopy(copy); !status.ok()) {
      NoteError(status);
      AskForRepair(status);
      const std::lock_guard<std::mutex> lock(work_mutex_);
      std::erase(to_copy_, copy);
    }
    return;
  }
  {
    const std::unique_lock<std::shared_mutex> lock(chain_mutex_);
    for (SnapshotRecord& record : records_) {
      if (record.name == copy->name()) record.info.ready = true;
    }
  }
  Copies copies = copies_;
  std::erase(copies, copy);
  SetCopies(std::move(copies));
  ContinueCopies();
}

// Requires: admin_ or chain_mutex_.
const SnapshotRecord* TrackedVolume::Core::FindRecord(std::string_view id) const noexcept {
  const auto found = std::find_if(records_.begin(), records_.end(),
                                  [id](const auto& record) { return record.info.id == id; });
  return found == records_.end() ? nullptr : &*found;
}

std::vector<SnapshotInfo> TrackedVolume::Core::snapshots() const {
  const std::shared_lock<std::shared_mutex> lock(chain_mutex_);
  std::vector<SnapshotInfo> infos;
  infos.reserve(records_.size());
  for (const SnapshotRecord& record : records_) infos.push_back(record.info);
  return infos;
}

std::vector<SnapshotMark> TrackedVolume::Core::marks() const {
  const std::shared_lock<std::shared_mutex> lock(chain_mutex_);
  std::vector<SnapshotMark> marks;
  marks.reserve(marks_.size());
  for (const MarkRecord& record : marks_) marks.push_back(record.mark);
  return marks;
}

absl::StatusOr<SnapshotInfo> TrackedVolume::Core::FindSnapshot(std::string_view id) const {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  const std::shared_lock<std::shared_mutex> lock(chain_mutex_);
  const SnapshotRecord* const record = FindRecord(id);
  if (record == nullptr) return NoSnapshot(id);
  return record->info;
}

absl::StatusOr<std::string> TrackedVolume::Core::SnapshotPath(std::string_view id) const {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  const std::shared_lock<std::shared_mutex> lock(chain_mutex_);
  const SnapshotRecord* const record = FindRecord(id);
  if (record == nullptr) return NoSnapshot(id);
  if (!record->info.ready) return NotReady(id);
  return PathOfSnapshot(path_, *snapshot_files_, record->name);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> TrackedVolume::Core::Delta(
    std::string_view base, std::string_view target) const {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  const std::shared_lock<std::shared_mutex> lock(chain_mutex_);
  const absl::StatusOr<std::string> from = NameOfBase(base, records_, marks_);
  if (!from.ok()) return from.status();
  const SnapshotRecord* const to = FindRecord(target);
  if (to == nullptr) return NoSnapshot(target);
  if (!to->info.ready) return NotReady(target);
  return chain_->Delta(*from, to->name);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> TrackedVolume::Core::Allocated(
    std::string_view id) const {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  std::string name;
  {
    const std::shared_lock<std::shared_mutex> lock(chain_mutex_);
    const SnapshotRecord* const record = FindRecord(id);
    if (record == nullptr) return NoSnapshot(id);
    if (!record->info.ready) return NotReady(id);
    name = record->name;
  }
  return AllocatedIn(*snapshot_files_, name, id, granularity());
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
  status.snapshots = records_.size();
  status.copying = copies_.size();
  status.marks = marks_.size();
  status.exact = replaced_.ok();
  for (const ChangeTracker::Epoch& epoch : tracker_->epochs()) status.exact &= epoch.exact;
  if (const absl::StatusOr<ChangeMap> changes = tracker_->Changes(); changes.ok()) {
    status.changed_bytes = (*changes)->changed_bytes();
  } else {
    // Not known: as much as there may be.
    status.changed_bytes = status.capacity;
    status.exact = false;
  }
  status.clones = clones_.load();
  status.longest_hold_ns = longest_hold_ns_.load();
  const std::lock_guard<std::mutex> lock(work_mutex_);
  status.last_error = write_error_.empty() ? last_error_ : write_error_;
  return status;
}

bool TrackedVolume::Core::WaitForCopies(double seconds) const {
  std::unique_lock<std::mutex> lock(work_mutex_);
  return work_changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                                [this] { return to_copy_.empty(); });
}

}  // namespace cbt::volume

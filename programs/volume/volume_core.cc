#include "programs/volume/volume_core.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "map/chain/chain_access.h"
#include "map/tracker/tracker_access.h"
#include "programs/volume/data_stamp.h"

namespace cbt::volume {
namespace {

// How much is copied before another snapshot has its turn.
constexpr uint64_t kRegionsAtOnce = 64;

// Between attempts to make writes succeed again.
constexpr std::chrono::milliseconds kFirstPause(100);
constexpr std::chrono::milliseconds kMaxPause(10'000);

}  // namespace

TrackedVolume::Core::~Core() {
  if (!worker_.joinable()) return;
  if (!process_.IsOurs()) {
    worker_.detach();  // a forked child does not have it
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(work_mutex_);
    stopping_ = true;
  }
  work_changed_.notify_all();
  worker_.join();
}

TrackerOptions TrackedVolume::Core::OptionsOfTracker(const VolumeManifest& manifest,
                                                     const std::string& base) const {
  TrackerOptions options;
  options.geometry = {.capacity = manifest.capacity, .granularity = manifest.granularity};
  options.volume = manifest.name;
  options.base = base;
  options.region_bytes = manifest.region_bytes;
  return options;
}

// Directories that a Resize() left when it was interrupted.
absl::Status TrackedVolume::Core::RemoveOldTrackers() const {
  absl::StatusOr<std::vector<std::string>> names = directory_->List();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (!name.starts_with(kTrackerPrefix) || name == TrackerName(manifest_.tracker)) continue;
    if (absl::Status status = directory_->RemoveTree(name); !status.ok()) return status;
  }
  return absl::OkStatus();
}

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
  absl::StatusOr<OwnedDescriptor> data = directory->OpenFile(kDataName, O_RDWR | O_NOFOLLOW);
  if (!data.ok()) return lost(data.status());
  data_ = *std::move(data);
  if (absl::Status status = CompareWithClosed(); !status.ok()) return status;
  struct stat stat;
  if (::fstat(data_.number(), &stat) != 0) return FileError(directory->Shown(kDataName), errno);
  if (!S_ISREG(stat.st_mode) || static_cast<uint64_t>(stat.st_size) < manifest_.capacity) {
    return absl::DataLossError(absl::StrCat(directory->Shown(kDataName), ": has ", stat.st_size,
                                            " bytes, the volume ", manifest_.capacity));
  }
  // A Resize() that was interrupted; nothing has been written there.
  if (static_cast<uint64_t>(stat.st_size) > manifest_.capacity &&
      ::ftruncate(data_.number(), static_cast<off_t>(manifest_.capacity)) != 0) {
    return FileError(directory->Shown(kDataName), errno);
  }
  for (auto [name, place] :
       {std::pair(kSnapshotsName, &snapshot_files_), std::pair(kCopyingName, &copying_files_)}) {
    absl::StatusOr<Directory> opened = directory->OpenDirectory(name);
    if (!opened.ok()) return lost(opened.status());
    *place = std::make_unique<const Directory>(*std::move(opened));
  }
  // A volume of an earlier version has none.
  absl::StatusOr<Directory> marks = directory->MakeDirectory(kMarksName, /*sync=*/true);
  if (!marks.ok()) return marks.status();
  mark_files_ = std::make_unique<const Directory>(*std::move(marks));
  if (absl::Status status = RemoveOldTrackers(); !status.ok()) return status;
  const absl::StatusOr<Directory> chain_directory = directory->OpenDirectory(kChainName);
  if (!chain_directory.ok()) return lost(chain_directory.status());
  absl::StatusOr<std::unique_ptr<ChangeChain>> chain =
      OpenChainIn(*chain_directory, ChangeChain::Access::kChange);
  if (!chain.ok()) return lost(chain.status());
  chain_ = *std::move(chain);
  const absl::StatusOr<Directory> tracker_directory =
      directory->OpenDirectory(TrackerName(manifest_.tracker));
  if (!tracker_directory.ok()) return lost(tracker_directory.status());
  absl::StatusOr<std::unique_ptr<ChangeTracker>> tracker =
      TrackerAccess::Recover(OptionsOfTracker(manifest_, {}), *tracker_directory);
  if (!tracker.ok()) return lost(tracker.status());
  tracker_ = *std::move(tracker);
  if (!replaced_.ok()) {
    absl::Status status = tracker_->Mark({0, manifest_.capacity});
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
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

// Copies that can't be continued are dropped with everything else that is in their directory.
absl::Status TrackedVolume::Core::ResumeCopies() {
  // A killed process may have removed a copy without waiting for the disk. It must not come back
  // when a later one has its name.
  if (absl::Status status = copying_files_->Sync(); !status.ok()) return status;
  absl::StatusOr<std::vector<std::string>> names = copying_files_->List();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (name.ends_with(kCopiedSuffix)) continue;
    // Regions that have not been copied yet exist nowhere else.
    absl::StatusOr<std::shared_ptr<SnapshotCopy>> copy =
        replaced_.ok() ? SnapshotCopy::Resume(*copying_files_, name, data_.number())
                       : absl::StatusOr<std::shared_ptr<SnapshotCopy>>(replaced_);
    if (copy.ok()) {
      copies_.push_back(*std::move(copy));
    } else if (absl::IsAborted(copy.status()) || absl::IsNotFound(copy.status())) {
      NoteError(copy.status());
      if (!RemoveCopyFiles(*copying_files_, name)) {
        return FileError(copying_files_->Shown(name), errno);
      }
    } else {
      return copy.status();
    }
  }
  for (const std::string& name : *names) {
    if (!name.ends_with(kCopiedSuffix)) continue;
    const std::string id = name.substr(0, name.size() - kCopiedSuffix.size());
    absl::StatusOr<bool> has = copying_files_->Has(id);
    if (!has.ok()) return has.status();
    if (!*has) copying_files_->Remove(name.c_str());
  }
  return absl::OkStatus();
}

void TrackedVolume::Core::RemoveSuperseded() {
  const absl::StatusOr<std::vector<std::string>> files = snapshot_files_->List();
  if (!files.ok()) return NoteError(files.status());
  std::set<std::string_view> names;
  std::set<std::string_view> ids;
  for (const SnapshotRecord& record : records_) {
    names.insert(record.name);
    ids.insert(record.info.id);
  }
  for (const std::string& file : *files) {
    if (names.contains(file) || !ids.contains(IdOf(file))) continue;
    if (!snapshot_files_->Remove(file.c_str())) {
      NoteError(FileError(snapshot_files_->Shown(file), errno));
    }
  }
}

absl::Status TrackedVolume::Core::Open() {
  if (absl::Status status = OpenParts(); !status.ok()) return status;
  if (absl::Status status = ResumeCopies(); !status.ok()) return status;
  // What a change of the data demanded is on disk.
  if (!directory_->Remove(kClosedName)) return FileError(directory_->Shown(kClosedName), errno);
  if (absl::Status status = directory_->Sync(); !status.ok()) return status;
  if (absl::Status status = FinishEpoch(); !status.ok()) return status;
  absl::StatusOr<std::vector<SnapshotRecord>> complete = ReadSnapshots(*chain_, *snapshot_files_);
  if (!complete.ok()) return complete.status();
  // In the order of the chain, with the copies. A copy that the chain does not have was never
  // begun.
  records_.clear();
  Copies copies;
  auto next = complete->begin();
  for (const ChainSnapshot& entry : chain_->snapshots()) {
    if (next != complete->end() && next->name == entry.id) {
      records_.push_back(std::move(*next++));
      continue;
    }
    for (const std::shared_ptr<SnapshotCopy>& copy : copies_) {
      if (copy->name() != entry.id || copy->info().size != entry.capacity) continue;
      records_.push_back({entry.id, copy->info()});
      copies.push_back(copy);
    }
  }
  DropSuperseded(records_);
  std::erase_if(copies, [this](const std::shared_ptr<SnapshotCopy>& copy) {
    return std::none_of(records_.begin(), records_.end(),
                        [&copy](const auto& record) { return record.name == copy->name(); });
  });
  std::swap(copies, copies_);
  for (const std::shared_ptr<SnapshotCopy>& copy : copies) {
    if (std::find(copies_.begin(), copies_.end(), copy) == copies_.end() &&
        !RemoveCopyFiles(*copying_files_, copy->name())) {
      return FileError(copying_files_->Shown(copy->name()), errno);
    }
  }
  to_copy_ = copies_;
  RemoveSuperseded();
  if (absl::Status status = LoadMarks(); !status.ok()) return status;
  if (absl::Status status = RemoveHidden(); !status.ok()) NoteError(status);
  if (!replaced_.ok()) NoteError(replaced_);
  if (absl::Status status = ResumeRevert(); !status.ok()) return status;
  open_.store(true);
  worker_ = std::thread([this] { Work(); });
  return absl::OkStatus();
}

absl::Status TrackedVolume::Core::Close() {
  if (!process_.IsOurs()) return CopiedByFork("the volume");
  const std::lock_guard<std::mutex> only(close_);
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  {
    const std::lock_guard<std::mutex> lock(work_mutex_);
    stopping_ = true;
  }
  work_changed_.notify_all();
  worker_.join();
  const std::lock_guard<std::mutex> admin(admin_);
  gate_.Shut();
  absl::Status status = Sync();
  if (absl::Status closed = tracker_->Close(); status.ok()) status = closed;
  if (status.ok()) status = WriteClosed(*directory_, data_.number());
  open_.store(false);
  const std::unique_lock<std::shared_mutex> lock(chain_mutex_);
  tracker_.reset();
  chain_.reset();
  copies_.clear();
  claim_.reset();
  return status;
}

void TrackedVolume::Core::NoteError(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(work_mutex_);
  last_error_ = std::string(status.message());
}

void TrackedVolume::Core::AskForRepair(const absl::Status& status) {
  {
    const std::lock_guard<std::mutex> lock(work_mutex_);
    repair_ = true;
    write_error_ = std::string(status.message());
  }
  work_changed_.notify_all();
}

// Brings back what makes every write fail: a log that could not be written, and a copy that could
// not be dropped after it had failed.
absl::Status TrackedVolume::Core::Repair() {
  const std::lock_guard<std::mutex> admin(admin_);
  for (const std::shared_ptr<SnapshotCopy>& copy : Copies(copies_)) {
    if (copy->failed() == 0) continue;
    if (absl::Status status = DropCopy(copy); !status.ok()) return status;
  }
  written_.store(false);
  absl::Status status = tracker_->Checkpoint();
  if (!status.ok()) written_.store(true);
  return status;
}

// Copies snapshots, saves the tracker's state and repairs it, until Close().
void TrackedVolume::Core::Work() {
  using Clock = std::chrono::steady_clock;
  const std::chrono::seconds interval(options_.checkpoint_seconds == 0
                                          ? std::chrono::hours(24 * 365)
                                          : std::chrono::seconds(options_.checkpoint_seconds));
  Clock::time_point due = Clock::now() + interval;
  Clock::time_point repair_due = Clock::now();
  std::chrono::milliseconds pause = kFirstPause;
  for (size_t turn = 0;; ++turn) {
    std::shared_ptr<SnapshotCopy> copy;
    bool repair = false;
    {
      std::unique_lock<std::mutex> lock(work_mutex_);
      const auto next = [&] { return repair_ ? std::min(due, repair_due) : due; };
      while (!stopping_ && to_copy_.empty() && Clock::now() < next()) {
        work_changed_.wait_until(lock, next());
      }
      if (stopping_) return;
      if (!to_copy_.empty()) copy = to_copy_[turn % to_copy_.size()];
      // A write that fails from here on asks again.
      if (Clock::now() >= repair_due) repair = std::exchange(repair_, false);
    }
    if (repair) {
      const absl::Status status = Repair();
      const std::lock_guard<std::mutex> lock(work_mutex_);
      if (status.ok()) {
        if (!repair_) write_error_.clear();
        pause = kFirstPause;
      } else {
        repair_ = true;
        write_error_ = std::string(status.message());
        pause = std::min(2 * pause, kMaxPause);
      }
      repair_due = Clock::now() + pause;
    }
    if (copy != nullptr && !copy->Continue(kRegionsAtOnce)) FinishCopy(copy);
    if (Clock::now() < due) continue;
    if (written_.exchange(false)) {
      const std::lock_guard<std::mutex> admin(admin_);
      if (absl::Status status = tracker_->Checkpoint(); !status.ok()) {
        written_.store(true);
        NoteError(status);
      }
    }
    due = Clock::now() + interval;
  }
}

}  // namespace cbt::volume

// The epochs of a tracker, and what it leaves on disk.
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "map/map_file.h"
#include "map/tracker/tracker_core.h"

namespace cbt {
namespace {

// Different for each tracker, so that files copied from one to another don't match.
uint64_t RandomId() noexcept {
  uint64_t id = 0;
  while (id == 0) {
    if (::getrandom(&id, sizeof(id), 0) != static_cast<ssize_t>(sizeof(id))) {
      id = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    }
  }
  return id;
}

// Late writes may not have landed: an epoch that counts any is not exact.
bool IsSomething(const std::optional<ChangeMap>& map) {
  return map.has_value() && !(*map)->empty();
}

}  // namespace

// Before any lock: in a forked child it may be held forever.
absl::Status ChangeTracker::Core::CheckProcess() const {
  return IsOurs() ? absl::OkStatus() : CopiedByFork("the tracker");
}

// For functions that change epochs, under the lock.
absl::Status ChangeTracker::Core::CheckOpen() const {
  if (closed_.load()) return absl::FailedPreconditionError("the tracker is closed");
  return files_ == nullptr ? absl::OkStatus() : files_->CheckClaim();
}

absl::Status ChangeTracker::Core::CheckBothOpen() const {
  if (both()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      has_closed_ ? absl::StrCat("only one epoch is open: the one before \"",
                                 epochs_[oldest()].base, "\" is closed already")
                  : "only one epoch is open");
}

absl::StatusOr<std::unique_ptr<ChangeTracker::Core>> ChangeTracker::Core::Make(
    const TrackerOptions& options, const Directory* directory) {
  const VolumeGeometry& geometry = options.geometry;
  absl::Status status = CheckGeometry(geometry);
  if (!status.ok()) return status;
  if (status = CheckIdentity({options.volume, options.base, {}}); !status.ok()) return status;
  if (options.region_bytes == 0 || options.region_bytes > kMaxGranularity ||
      options.region_bytes % geometry.granularity != 0) {
    return absl::InvalidArgumentError(absl::StrCat("region_bytes ", options.region_bytes,
                                                   " is not a multiple of the granularity ",
                                                   geometry.granularity));
  }
  if (!options.directory.empty() &&
      BlockCount(geometry.capacity, options.region_bytes) > kMaxRegions) {
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kMaxRegions, " regions: region_bytes is too small"));
  }
  std::unique_ptr<TrackerFiles> files;
  if (!options.directory.empty()) {
    absl::StatusOr<std::unique_ptr<TrackerFiles>> opened =
        directory != nullptr ? TrackerFiles::Open(*directory)
                             : TrackerFiles::Open(options.directory);
    if (!opened.ok()) return opened.status();
    files = *std::move(opened);
  }
  std::array<std::unique_ptr<DirtyBitmap>, 2> bitmaps;
  for (std::unique_ptr<DirtyBitmap>& bitmap : bitmaps) {
    absl::StatusOr<std::unique_ptr<DirtyBitmap>> made =
        DirtyBitmap::Create(BlockCount(geometry.capacity, geometry.granularity));
    if (!made.ok()) return made.status();
    bitmap = *std::move(made);
  }
  auto core = std::make_unique<Core>(options, std::move(files), std::move(bitmaps));
  core->id_ = options.id != 0 ? options.id : RandomId();
  return core;
}

absl::StatusOr<std::shared_ptr<RegionLog>> ChangeTracker::Core::CreateLog(
    const OpenEpochState& epoch) {
  return files_->CreateLog({.tracker = id_,
                            .geometry = options_.geometry,
                            .region_bytes = options_.region_bytes,
                            .epoch = epoch.number,
                            .number = 0,
                            .volume = options_.volume,
                            .base = epoch.base});
}

void ChangeTracker::Core::SetLog(OpenEpochState& epoch, std::shared_ptr<RegionLog> log) {
  const std::lock_guard<std::mutex> lock(log_mutex_);
  epoch.log_in_use.store(log.get(), std::memory_order_release);
  epoch.log = std::move(log);
}

// The manifest's entry for an epoch without a map on disk.
TrackedEpoch ChangeTracker::Core::NewlyTracked(const OpenEpochState& epoch, const RegionLog& log) {
  return {.number = epoch.number,
          .base = epoch.base,
          .exact = epoch.exact,
          .map = {},
          .logs = {log.file()}};
}

// The first epoch.
absl::Status ChangeTracker::Core::Begin() {
  OpenEpochState& epoch = epochs_[0];
  epoch.base = options_.base;
  if (files_ == nullptr) return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<RegionLog>> log = CreateLog(epoch);
  if (!log.ok()) return log.status();
  TrackerManifest first;
  first.id = id_;
  first.geometry = options_.geometry;
  first.volume = options_.volume;
  first.next_epoch = epoch.number + 1;
  first.epochs = {NewlyTracked(epoch, **log)};
  absl::Status status = files_->Commit(std::move(first));
  if (status.ok()) {
    SetLog(epoch, *std::move(log));
  } else {
    files_->RemoveAll();
  }
  return status;
}

absl::Status ChangeTracker::Core::Restore(TrackerFiles::Contents found) {
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  id_ = files_->manifest().id;
  for (size_t i = 0; i < found.epochs.size(); ++i) {
    epochs_[i].number = found.epochs[i].files.number;
    epochs_[i].base = found.epochs[i].files.base;
    epochs_[i].exact = found.epochs[i].exact;
    epochs_[i].bitmap->MarkAll(found.epochs[i].map);
  }
  has_closed_ = files_->manifest().older_closed;
  if (has_closed_) {
    state_.store(kOldest);
  } else {
    state_.store(found.epochs.size() == 2 ? kBoth : 0);
  }
  if (found.closed) {
    late_ = std::move(found.late);
    return CheckpointLocked();
  }
  // Announced writes may still reach the storage. All of them are in the newest epoch: writes in
  // flight were added before it counted as open, and so were late writes of earlier crashes.
  const OpenEpochState& newest = epochs_[found.epochs.size() - 1];
  absl::StatusOr<ChangeMap> late = MapOf(newest, {});
  if (!late.ok()) return late.status();
  late_ = *std::move(late);
  late_until_ = newest.number;
  return CheckpointLocked();
}

// Returns once no thread works under the old state any more.
void ChangeTracker::Core::ChangeState(unsigned oldest, bool both) noexcept {
  const uint32_t old = state_.load(std::memory_order_relaxed);
  const uint32_t number = (old & ~(kBoth | kOldest)) + kNumber;
  state_.store(number | (oldest != 0 ? kOldest : 0) | (both ? kBoth : 0),
               std::memory_order_seq_cst);
  pins_.Wait(ParityOf(old));
}

absl::Status ChangeTracker::Core::OpenEpoch(const std::string& name) {
  if (absl::Status status = CheckIdentity({{}, {}, name}); !status.ok()) return status;
  if (absl::Status status = CheckProcess(); !status.ok()) return status;
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  if (absl::Status status = CheckOpen(); !status.ok()) return status;
  if (both()) {
    return absl::FailedPreconditionError("two epochs are open: close or cancel one first");
  }
  if (has_closed_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the epoch from \"", epochs_[1 - oldest()].base, "\" to \"", epochs_[oldest()].base,
        "\" is closed but not acknowledged: store its map (CloseEpoch() returns it again), then "
        "call Acknowledge()"));
  }
  const unsigned older = oldest();
  OpenEpochState& epoch = epochs_[1 - older];
  epoch.base = name;
  epoch.exact = true;
  absl::Status on_disk;
  if (files_ != nullptr) {
    on_disk = BeginOnDisk(epoch);
    if (epoch.log == nullptr) return on_disk;
  }
  // Open the epoch even if that failed and it may be on disk: otherwise it would lack every write
  // if a crash brought it back.
  must_cancel_ = true;
  ChangeState(older, true);
  absl::Status status = on_disk;
  try {
    if (status.ok()) status = MarkWritesInFlight(epoch);
    if (status.ok()) status = MarkLateWrites(epoch);
    if (status.ok()) status = CountAsOpen();
  } catch (...) {
    DropNewer().IgnoreError();
    throw;
  }
  // Return to the older epoch, which has everything. If even that can't be saved, both stay open
  // until CancelEpoch() succeeds.
  if (!status.ok()) {
    DropNewer().IgnoreError();
    return status;
  }
  must_cancel_ = false;
  return absl::OkStatus();
}

// Adds the newer epoch to the manifest on disk. The epoch has a log if it may be on disk.
absl::Status ChangeTracker::Core::BeginOnDisk(OpenEpochState& epoch) {
  TrackerManifest next = files_->manifest();
  epoch.number = next.next_epoch++;
  epoch.exact = !(next.late.has_value() && IsSomething(late_));
  absl::StatusOr<std::shared_ptr<RegionLog>> log = CreateLog(epoch);
  if (!log.ok()) return log.status();
  next.epochs.push_back(NewlyTracked(epoch, **log));
  next.opening = true;
  absl::Status status = files_->Commit(std::move(next));
  if (status.ok() || files_->IsUnsure()) SetLog(epoch, *std::move(log));
  return status;
}

absl::Status ChangeTracker::Core::MarkWritesInFlight(OpenEpochState& epoch) {
  absl::Status status;
  writes_.ForEach([&](uint64_t begin, uint64_t end) {
    if (begin == end) return;
    epoch.bitmap->Mark(BlockOf(begin), BlockOf(end - 1) + 1);
    if (files_ != nullptr && status.ok()) {
      status = epoch.log->Add(begin / options_.region_bytes, (end - 1) / options_.region_bytes);
    }
  });
  return status;
}

// The writes of a crashed process, which never end.
absl::Status ChangeTracker::Core::MarkLateWrites(OpenEpochState& epoch) {
  if (files_ == nullptr || !files_->manifest().late.has_value()) return absl::OkStatus();
  epoch.bitmap->MarkAll(*late_);
  return LogMap(epoch, *late_);
}

// The newer epoch is complete: from here on it survives a crash.
absl::Status ChangeTracker::Core::CountAsOpen() {
  if (files_ == nullptr) return absl::OkStatus();
  TrackerManifest next = files_->manifest();
  next.opening = false;
  return files_->Commit(std::move(next));
}

// Drops the newer epoch; the older one has everything that it has.
absl::Status ChangeTracker::Core::DropNewer() {
  const unsigned older = oldest();
  OpenEpochState& newer = epochs_[1 - older];
  // On disk first: an epoch that a crash brings back must have had every write. On failure it may
  // be gone from disk nevertheless.
  must_cancel_ = true;
  if (files_ != nullptr) {
    TrackerManifest next = Described();
    next.DropNewer();
    if (absl::Status status = files_->Commit(std::move(next)); !status.ok()) return status;
  }
  ChangeState(older, false);
  SetLog(newer, nullptr);
  newer.bitmap->Clear();
  must_cancel_ = false;
  return absl::OkStatus();
}

absl::StatusOr<ChangeMap> ChangeTracker::Core::MapOf(const OpenEpochState& epoch,
                                                     const std::string& target) const {
  absl::StatusOr<ChangeMap> map = epoch.bitmap->ToMap(options_.geometry);
  if (map.ok()) map->set_identity({options_.volume, epoch.base, target});
  return map;
}

absl::StatusOr<ChangeMap> ChangeTracker::Core::CloseEpoch() {
  if (absl::Status status = CheckProcess(); !status.ok()) return status;
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  if (absl::Status status = CheckOpen(); !status.ok()) return status;
  if (has_closed_) return MapOf(epochs_[1 - oldest()], epochs_[oldest()].base);
  if (absl::Status status = CheckBothOpen(); !status.ok()) return status;
  if (must_cancel_) {
    return absl::FailedPreconditionError(
        "opening or cancelling the newer epoch failed: it can only be cancelled");
  }
  const unsigned older = oldest();
  OpenEpochState& epoch = epochs_[older];
  ChangeState(1 - older, false);
  absl::StatusOr<ChangeMap> map;
  try {
    map = MapOf(epoch, epochs_[1 - older].base);
    if (map.ok() && files_ != nullptr) {
      if (absl::Status status = KeepClosed(epoch, *map); !status.ok()) map = std::move(status);
    }
  } catch (...) {
    ChangeState(older, true);
    throw;
  }
  if (!map.ok()) {
    // Writes announced meanwhile are only in the newer epoch, as after a restart: see Changes().
    ChangeState(older, true);
    return map.status();
  }
  SetLog(epoch, nullptr);
  has_closed_ = true;
  return map;
}

// Stores the map of the older epoch in place of its logs. If the manifest is then possibly on disk
// (IsUnsure()), a crash may find the epoch closed though it is open: the map has every write up to
// the snapshot, and the newer epoch has every write after it.
absl::Status ChangeTracker::Core::KeepClosed(const OpenEpochState& epoch, const ChangeMap& map) {
  absl::StatusOr<ManifestFile> file = files_->WriteMap(map);
  if (!file.ok()) return file.status();
  TrackerManifest next = files_->manifest();
  TrackedEpoch& tracked = *next.Find(epoch.number);
  tracked.map = *file;
  tracked.exact = epoch.exact;
  tracked.logs.clear();
  next.older_closed = true;
  return files_->Commit(std::move(next));
}

absl::Status ChangeTracker::Core::Acknowledge(const ChangeMapIdentity& stored) {
  if (absl::Status status = CheckProcess(); !status.ok()) return status;
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  if (absl::Status status = CheckOpen(); !status.ok()) return status;
  if (!has_closed_) {
    return absl::FailedPreconditionError("no epoch is closed: there is nothing to acknowledge");
  }
  const OpenEpochState& open = epochs_[oldest()];
  const OpenEpochState& closed = epochs_[1 - oldest()];
  if (stored != ChangeMapIdentity{options_.volume, closed.base, open.base}) {
    return absl::InvalidArgumentError(
        absl::StrCat("the closed epoch is the one from \"", closed.base, "\" to \"", open.base,
                     "\" of volume \"", options_.volume, "\", not the one from \"", stored.base,
                     "\" to \"", stored.target, "\" of volume \"", stored.volume, "\""));
  }
  if (files_ != nullptr) {
    TrackerManifest next = files_->manifest();
    next.KeepOnly(open.number);
    if (absl::Status status = files_->Commit(std::move(next)); !status.ok()) return status;
  }
  closed.bitmap->Clear();
  has_closed_ = false;
  return absl::OkStatus();
}

// Adds the map's regions to the log of the epoch that stays; the other epoch's log no longer
// matters.
absl::Status ChangeTracker::Core::LogMap(const OpenEpochState& epoch, const ChangeMap& map) {
  const std::unique_ptr<ExtentCursor> cursor = MakeChangeMapCursor(map);
  return ForEachBatch(*cursor, [this, &epoch](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      absl::Status status = epoch.log->Add(batch[i].offset / options_.region_bytes,
                                           (batch[i].end() - 1) / options_.region_bytes);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  });
}

absl::Status ChangeTracker::Core::CancelEpoch() {
  if (absl::Status status = CheckProcess(); !status.ok()) return status;
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  if (absl::Status status = CheckOpen(); !status.ok()) return status;
  if (absl::Status status = CheckBothOpen(); !status.ok()) return status;
  const unsigned older = oldest();
  const OpenEpochState& newer = epochs_[1 - older];
  const absl::StatusOr<ChangeMap> map = newer.bitmap->ToMap(options_.geometry);
  if (!map.ok()) return map.status();
  // Usually it has all of it already, see Changes().
  epochs_[older].bitmap->MarkAll(*map);
  epochs_[older].exact &= newer.exact;
  if (files_ != nullptr) {
    if (absl::Status status = LogMap(epochs_[older], *map); !status.ok()) return status;
  }
  return DropNewer();
}

absl::StatusOr<ChangeMap> ChangeTracker::Core::Changes() const {
  if (absl::Status status = CheckProcess(); !status.ok()) return status;
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  absl::StatusOr<ChangeMap> map = MapOf(epochs_[oldest()], {});
  if (!map.ok() || !both()) return map;
  // Usually the older epoch has everything that the newer one has. But it was not marked while
  // CloseEpoch() failed.
  const absl::StatusOr<ChangeMap> newer = MapOf(epochs_[1 - oldest()], {});
  if (!newer.ok()) return newer.status();
  if (absl::Status status = map->UniteWith(*newer); !status.ok()) return status;
  return map;
}

std::vector<ChangeTracker::Epoch> ChangeTracker::Core::Epochs() const {
  if (!IsOurs()) return {};
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  const unsigned older = has_closed_ ? 1 - oldest() : oldest();
  std::vector<ChangeTracker::Epoch> epochs = {
      {epochs_[older].base, has_closed_, epochs_[older].exact}};
  if (both() || has_closed_) {
    epochs.push_back({epochs_[1 - older].base, false, epochs_[1 - older].exact});
  }
  return epochs;
}

// The manifest with every open epoch, including one that could not be saved yet.
TrackerManifest ChangeTracker::Core::Described() const {
  TrackerManifest manifest = files_->manifest();
  manifest.opening = both() && must_cancel_;
  const unsigned older = oldest();
  const OpenEpochState& newer = epochs_[1 - older];
  if (!both() || manifest.Find(newer.number) != nullptr) return manifest;
  manifest.next_epoch = newer.number + 1;
  manifest.epochs.push_back(NewlyTracked(newer, *newer.log));
  return manifest;
}

absl::Status ChangeTracker::Core::CheckpointLocked() {
  const std::vector<OpenEpochState*> epochs = OpenEpochs();
  std::vector<std::shared_ptr<RegionLog>> logs;
  TrackerManifest next = Described();
  next.closed = false;
  for (const OpenEpochState* const epoch : epochs) {
    absl::StatusOr<std::shared_ptr<RegionLog>> log = CreateLog(*epoch);
    if (!log.ok()) return log.status();
    next.Find(epoch->number)->logs.push_back((*log)->file());
    logs.push_back(*std::move(log));
  }
  // The manifest names the new logs, with the old ones, before anything relies on them.
  TrackerManifest after = next;
  if (absl::Status status = files_->Commit(std::move(next)); !status.ok()) return status;
  for (size_t i = 0; i < epochs.size(); ++i) {
    // The old logs stay alive until no thread uses them.
    SetLog(*epochs[i], std::exchange(logs[i], epochs[i]->log));
  }
  // After this, every writer that relied on the old logs has marked the bitmaps.
  ChangeState(oldest(), both());
  if (absl::Status status = WriteMaps(after); !status.ok()) return status;
  for (const OpenEpochState* const epoch : epochs) {
    std::vector<ManifestFile>& tracked = after.Find(epoch->number)->logs;
    tracked.erase(tracked.begin(), tracked.end() - 1);
  }
  if (late_until_.has_value()) after.late = {after.Find(*late_until_)->map, *late_until_};
  if (absl::Status status = files_->Commit(std::move(after)); !status.ok()) return status;
  late_until_.reset();
  return absl::OkStatus();
}

// Writes the current maps of the open epochs.
absl::Status ChangeTracker::Core::WriteMaps(TrackerManifest& next) {
  for (const OpenEpochState* const epoch : OpenEpochs()) {
    const absl::StatusOr<ChangeMap> map = MapOf(*epoch, {});
    if (!map.ok()) return map.status();
    absl::StatusOr<ManifestFile> file = files_->WriteMap(*map);
    if (!file.ok()) return file.status();
    TrackedEpoch& tracked = *next.Find(epoch->number);
    tracked.map = *file;
    tracked.exact = epoch->exact;
  }
  return absl::OkStatus();
}

absl::Status ChangeTracker::Core::Checkpoint() {
  if (absl::Status status = CheckProcess(); !status.ok()) return status;
  if (files_ == nullptr) return absl::OkStatus();
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  if (absl::Status status = CheckOpen(); !status.ok()) return status;
  return CheckpointLocked();
}

absl::Status ChangeTracker::Core::Close() {
  if (absl::Status status = CheckProcess(); !status.ok()) return status;
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  closed_.store(true);
  if (files_ == nullptr || written_down_) return absl::OkStatus();
  ChangeState(oldest(), both());
  TrackerManifest next = Described();
  if (absl::Status status = WriteMaps(next); !status.ok()) return status;
  bool in_flight = false;
  writes_.ForEach([&](uint64_t begin, uint64_t end) { in_flight |= begin != end; });
  // A write that has not ended may reach the storage later, as after a crash.
  next.closed = !in_flight;
  if (next.closed) {
    for (const OpenEpochState* const epoch : OpenEpochs()) next.Find(epoch->number)->logs.clear();
  }
  if (absl::Status status = files_->Commit(std::move(next)); !status.ok()) return status;
  written_down_ = true;
  return absl::OkStatus();
}

}  // namespace cbt

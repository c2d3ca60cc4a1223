// The epochs of a tracker, and what it leaves on disk.
#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "map/map_file.h"
#include "map/tracker_core.h"

namespace cbt {
namespace {

absl::Status Closed() { return absl::FailedPreconditionError("the tracker is closed"); }

}  // namespace

absl::StatusOr<std::unique_ptr<ChangeTracker::Core>> ChangeTracker::Core::Make(
    const TrackerOptions& options) {
  const VolumeGeometry& geometry = options.geometry;
  absl::Status status = CheckGeometry(geometry.capacity, geometry.granularity);
  if (!status.ok()) return status;
  if (status = CheckIdentity({options.volume, options.base, {}}); !status.ok()) return status;
  if (options.region_bytes == 0 || options.region_bytes > kMaxGranularity ||
      options.region_bytes % geometry.granularity != 0) {
    return absl::InvalidArgumentError(absl::StrCat("region_bytes ", options.region_bytes,
                                                   " is no multiple of the granularity ",
                                                   geometry.granularity));
  }
  constexpr uint64_t kMostRegions = uint64_t{1} << 24;
  if (!options.directory.empty() &&
      BlockCount(geometry.capacity, options.region_bytes) > kMostRegions) {
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kMostRegions, " regions: region_bytes is too small"));
  }
  std::unique_ptr<TrackerFiles> files;
  if (!options.directory.empty()) {
    absl::StatusOr<std::unique_ptr<TrackerFiles>> opened = TrackerFiles::Open(options.directory);
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
  return std::make_unique<Core>(options, std::move(files), std::move(bitmaps));
}

RegionLogHeader ChangeTracker::Core::HeaderOf(const OpenEpochState& epoch) const {
  return {options_.geometry, options_.region_bytes, epoch.number,
          epoch.generation,  options_.volume,       epoch.base};
}

void ChangeTracker::Core::SetLog(OpenEpochState& epoch, std::shared_ptr<RegionLog> log) {
  const std::lock_guard<std::mutex> lock(log_mutex_);
  epoch.log_in_use.store(log.get(), std::memory_order_release);
  epoch.log = std::move(log);
}

// The first epoch.
absl::Status ChangeTracker::Core::Begin() {
  OpenEpochState& epoch = epochs_[0];
  epoch.base = options_.base;
  if (files_ == nullptr) return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<RegionLog>> log = files_->CreateLog(HeaderOf(epoch));
  if (!log.ok()) return log.status();
  SetLog(epoch, *std::move(log));
  return absl::OkStatus();
}

absl::Status ChangeTracker::Core::Restore(std::vector<EpochFiles> found, uint64_t next_number) {
  next_number_ = next_number;
  for (size_t i = 0; i < found.size(); ++i) {
    epochs_[i].number = found[i].epoch;
    epochs_[i].generation = found[i].generation;
    epochs_[i].base = found[i].base;
    epochs_[i].exact = found[i].exact;
    epochs_[i].bitmap->MarkAll(found[i].map);
  }
  state_.store(found.size() == 2 ? kBoth : 0);
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  return CheckpointLocked();
}

// Returns when nobody works under the old state any more.
void ChangeTracker::Core::ChangeState(unsigned oldest, bool both) noexcept {
  const uint32_t old = state_.load(std::memory_order_relaxed);
  const uint32_t number = (old & ~(kBoth | kOldest)) + kNumber;
  state_.store(number | (oldest != 0 ? kOldest : 0) | (both ? kBoth : 0),
               std::memory_order_seq_cst);
  pins_.Wait(ParityOf(old));
}

absl::Status ChangeTracker::Core::OpenEpoch(const std::string& name) {
  if (absl::Status status = CheckIdentity({{}, {}, name}); !status.ok()) return status;
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  if (closed_.load()) return Closed();
  if (both()) {
    return absl::FailedPreconditionError("two epochs are open: close or cancel one first");
  }
  const unsigned older = oldest();
  OpenEpochState& epoch = epochs_[1 - older];
  epoch.number = next_number_++;
  epoch.generation = 0;
  epoch.base = name;
  epoch.exact = true;
  if (files_ != nullptr) {
    // The epoch that was closed last is kept until here, see CloseEpoch().
    for (std::optional<uint64_t>* const number : {&closed_number_, &begun_number_}) {
      if (!number->has_value()) continue;
      if (absl::Status status = files_->Forget(**number); !status.ok()) return status;
      number->reset();
    }
    begun_number_ = epoch.number;
    absl::StatusOr<std::shared_ptr<RegionLog>> log = files_->CreateLog(HeaderOf(epoch));
    if (!log.ok()) {
      if (files_->Forget(epoch.number).ok()) begun_number_.reset();
      return log.status();
    }
    SetLog(epoch, *std::move(log));
    begun_number_.reset();
  }
  must_cancel_ = true;
  ChangeState(older, true);
  absl::Status status;
  try {
    status = MarkWritesInFlight(epoch);
  } catch (...) {
    DropNewer().IgnoreError();
    throw;
  }
  // Back to the older epoch, which has everything; where even that can't be written down, the two
  // stay open until CancelEpoch() succeeds.
  if (!status.ok()) {
    DropNewer().IgnoreError();
    return status;
  }
  must_cancel_ = false;
  return absl::OkStatus();
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

// Gives up the newer epoch, of which the older one has everything.
absl::Status ChangeTracker::Core::DropNewer() {
  const unsigned older = oldest();
  OpenEpochState& newer = epochs_[1 - older];
  // On disk first: an epoch that a crash gives back must have had every write. Where that fails it
  // may be gone there all the same.
  must_cancel_ = true;
  if (files_ != nullptr) {
    if (absl::Status status = files_->Forget(newer.number); !status.ok()) return status;
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
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  if (closed_.load()) return Closed();
  if (!both()) return absl::FailedPreconditionError("only one epoch is open");
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
  } catch (...) {
    ChangeState(older, true);
    throw;
  }
  if (!map.ok()) {
    // What was announced meanwhile is in the newer epoch alone, as after a restart: see Changes().
    ChangeState(older, true);
    return map.status();
  }
  // Its files stay until the next epoch is opened: until then the caller may have brought the map
  // to a safe place, and after a crash before that it is there once more.
  SetLog(epoch, nullptr);
  epoch.bitmap->Clear();
  closed_number_ = epoch.number;
  return map;
}

// Into the log of the epoch that stays; what the other one's says does not matter any more.
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
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  if (closed_.load()) return Closed();
  if (!both()) return absl::FailedPreconditionError("only one epoch is open");
  const unsigned older = oldest();
  const OpenEpochState& newer = epochs_[1 - older];
  const absl::StatusOr<ChangeMap> map = newer.bitmap->ToMap(options_.geometry);
  if (!map.ok()) return map.status();
  // Usually all of it is there already, see Changes().
  epochs_[older].bitmap->MarkAll(*map);
  epochs_[older].exact &= newer.exact;
  if (files_ != nullptr) {
    if (absl::Status status = LogMap(epochs_[older], *map); !status.ok()) return status;
  }
  return DropNewer();
}

absl::StatusOr<ChangeMap> ChangeTracker::Core::Changes() const {
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  absl::StatusOr<ChangeMap> map = MapOf(epochs_[oldest()], {});
  if (!map.ok() || !both()) return map;
  // Usually the older epoch has all that the newer one has. But one that had been closed comes back
  // with a restart, and it was not marked in between.
  const absl::StatusOr<ChangeMap> newer = MapOf(epochs_[1 - oldest()], {});
  if (!newer.ok()) return newer.status();
  if (absl::Status status = map->UniteWith(*newer); !status.ok()) return status;
  return map;
}

std::vector<ChangeTracker::Epoch> ChangeTracker::Core::Epochs() const {
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  const unsigned older = oldest();
  std::vector<ChangeTracker::Epoch> epochs = {{epochs_[older].base, epochs_[older].exact}};
  if (both()) epochs.push_back({epochs_[1 - older].base, epochs_[1 - older].exact});
  return epochs;
}

absl::Status ChangeTracker::Core::CheckpointLocked() {
  const std::vector<OpenEpochState*> epochs = OpenEpochs();
  std::vector<std::shared_ptr<RegionLog>> logs;
  for (const OpenEpochState* const epoch : epochs) {
    RegionLogHeader header = HeaderOf(*epoch);
    ++header.generation;
    absl::StatusOr<std::shared_ptr<RegionLog>> log = files_->CreateLog(header);
    if (!log.ok()) return log.status();
    logs.push_back(*std::move(log));
  }
  for (size_t i = 0; i < epochs.size(); ++i) {
    ++epochs[i]->generation;
    // The old ones stay alive until nobody uses them.
    SetLog(*epochs[i], std::exchange(logs[i], epochs[i]->log));
  }
  // Who relied on the old logs has marked the bitmaps after this.
  ChangeState(oldest(), both());
  for (const OpenEpochState* const epoch : epochs) {
    const absl::StatusOr<ChangeMap> map = MapOf(*epoch, {});
    if (!map.ok()) return map.status();
    absl::Status status = files_->WriteMap(*map, epoch->number, epoch->generation, epoch->exact);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ChangeTracker::Core::Checkpoint() {
  if (files_ == nullptr) return absl::OkStatus();
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  if (closed_.load()) return Closed();
  return CheckpointLocked();
}

absl::Status ChangeTracker::Core::Close() {
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  closed_.store(true);
  if (files_ == nullptr || written_down_) return absl::OkStatus();
  ChangeState(oldest(), both());
  for (OpenEpochState* const epoch : OpenEpochs()) {
    const absl::StatusOr<ChangeMap> map = MapOf(*epoch, {});
    if (!map.ok()) return map.status();
    // A map without a log of its generation: written in peace.
    absl::Status status =
        files_->WriteMap(*map, epoch->number, epoch->generation + 1, epoch->exact);
    if (!status.ok()) return status;
  }
  written_down_ = true;
  return absl::OkStatus();
}

}  // namespace cbt

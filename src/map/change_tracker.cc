#include "cbt/change_tracker.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "map/dirty_bitmap.h"
#include "map/map_file.h"
#include "map/pin_table.h"
#include "map/region_log.h"
#include "map/tracker_files.h"
#include "map/write_table.h"

namespace cbt {

// How writers and epochs keep out of each other's way.
//
// `state_` says which of the two bitmaps are open. A writer pins the state it has seen, looks at it
// again, and if that is the same it marks the bitmaps and takes the pin back. Whoever changes the
// state waits until nobody has pinned the old one: then a bitmap that was closed is complete, and
// one that was opened misses nothing that
// comes. PinTable says how a writer either sees the new state or is seen.
//
// Writes that were announced before an epoch was opened and have not ended may reach the storage
// after its snapshot. They are in the table of writes, which they enter before they look at the
// state: OpenEpoch() finds them there after it has changed the state, or they see the new one.
//
// The log of regions is asked after the bitmaps were marked. A checkpoint puts new logs in place,
// changes the state and waits: who relied on an old log has then marked the bitmaps that the
// checkpoint writes down.
class ChangeTracker::Core {
 public:
  Core(const TrackerOptions& options, std::unique_ptr<TrackerFiles> files,
       std::array<std::unique_ptr<DirtyBitmap>, 2> bitmaps)
      : options_(options), files_(std::move(files)), writes_(options.writes_in_flight, pins_) {
    for (size_t i = 0; i < 2; ++i) {
      bitmaps_[i] = bitmaps[i].get();
      epochs_[i].bitmap = std::move(bitmaps[i]);
    }
  }

  static absl::StatusOr<std::unique_ptr<Core>> Make(const TrackerOptions& options);

  absl::Status Begin();
  absl::Status Restore(std::vector<EpochFiles> found, uint64_t next_number);

  absl::StatusOr<uint64_t> BeginWrite(Extent extent);
  void EndWrite(uint64_t place) noexcept { writes_.Remove(place); }
  absl::Status Mark(Extent extent);

  absl::Status OpenEpoch(const std::string& name);
  absl::StatusOr<ChangeMap> CloseEpoch();
  absl::Status CancelEpoch();
  absl::StatusOr<ChangeMap> Changes() const;
  std::vector<ChangeTracker::Epoch> Epochs() const;
  absl::Status Checkpoint();
  absl::Status Close();

  const TrackerOptions& options() const noexcept { return options_; }
  const TrackerFiles* files() const noexcept { return files_.get(); }

 private:
  struct OpenEpochState {
    uint64_t number = 0;
    uint64_t generation = 0;
    std::string base;
    bool exact = true;
    std::unique_ptr<DirtyBitmap> bitmap;
    std::shared_ptr<RegionLog> log;               // under log_mutex_
    std::atomic<RegionLog*> log_in_use{nullptr};  // the same, for who has pinned the state
  };

  // A state: its number, the index of the oldest open epoch, and whether both are open.
  static constexpr uint32_t kBoth = 1;
  static constexpr uint32_t kOldest = 2;
  static constexpr uint32_t kNumber = 4;
  static unsigned OldestOf(uint32_t state) noexcept { return (state & kOldest) != 0 ? 1 : 0; }
  static unsigned ParityOf(uint32_t state) noexcept { return (state & kNumber) != 0 ? 1 : 0; }

  class Pinned {
   public:
    explicit Pinned(Core& core) noexcept : pins_(core.pins_) {
      for (;;) {
        state_ = core.state_.load(std::memory_order_relaxed);
        pins_.Pin(ParityOf(state_));
        if (core.state_.load(std::memory_order_seq_cst) == state_) return;
        pins_.Unpin(ParityOf(state_));
      }
    }
    ~Pinned() { pins_.Unpin(ParityOf(state_)); }
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;
    uint32_t state() const noexcept { return state_; }

   private:
    PinTable& pins_;
    uint32_t state_ = 0;
  };

  // A division would cost more than the rest of a mark.
  uint64_t BlockOf(uint64_t offset) const noexcept {
    return shift_ >= 0 ? offset >> shift_ : offset / options_.geometry.granularity;
  }
  absl::Status CheckExtent(Extent extent) const;
  // True for what needs no second look: inside, not empty, and not too late.
  bool IsTrackable(Extent extent) const noexcept {
    const uint64_t capacity = options_.geometry.capacity;
    return extent.offset <= capacity && extent.length <= capacity - extent.offset &&
           extent.length != 0 && !closed_.load(std::memory_order_relaxed);
  }
  bool IsMarked(Extent extent) noexcept;
  enum class Marked { kDone, kNotLogged, kTooLate };
  Marked MarkBitmaps(Extent extent) noexcept;
  absl::Status Announce(Extent extent);
  // Apart, so that the registers it needs are not saved for every mark.
  [[gnu::noinline]] absl::Status MarkSlowly(Extent extent);
  bool IsLogged(const OpenEpochState& epoch, Extent extent) const noexcept;
  absl::Status Log(Extent extent);
  void ChangeState(unsigned oldest, bool both) noexcept;
  void SetLog(OpenEpochState& epoch, std::shared_ptr<RegionLog> log);
  RegionLogHeader HeaderOf(const OpenEpochState& epoch) const;
  ChangeMap Named(ChangeMap map, const std::string& base, const std::string& target) const;
  absl::Status CheckpointLocked();
  absl::Status LogMap(const ChangeMap& map);

  unsigned oldest() const noexcept { return OldestOf(state_.load(std::memory_order_relaxed)); }
  bool both() const noexcept { return (state_.load(std::memory_order_relaxed) & kBoth) != 0; }
  std::vector<OpenEpochState*> OpenEpochs() noexcept {
    std::vector<OpenEpochState*> open = {&epochs_[oldest()]};
    if (both()) open.push_back(&epochs_[1 - oldest()]);
    return open;
  }

  const TrackerOptions options_;
  const int shift_ = IsPowerOfTwo(options_.geometry.granularity)
                         ? std::countr_zero(options_.geometry.granularity)
                         : -1;
  const std::unique_ptr<TrackerFiles> files_;  // null: in memory only
  PinTable pins_;
  WriteTable writes_;
  std::array<OpenEpochState, 2> epochs_;
  std::array<const DirtyBitmap*, 2> bitmaps_;  // theirs
  // Under epoch_mutex_: the number of the next epoch, and that of the one that was closed last,
  // whose files are still there.
  uint64_t next_number_ = 1;
  std::optional<uint64_t> closed_number_;
  std::atomic<uint32_t> state_{0};
  std::atomic<bool> closed_{false};
  mutable std::mutex epoch_mutex_;  // held by whoever changes the state
  std::mutex log_mutex_;
};

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

absl::Status ChangeTracker::Core::CheckExtent(Extent extent) const {
  const uint64_t capacity = options_.geometry.capacity;
  if (extent.offset > capacity || extent.length > capacity - extent.offset) {
    return absl::OutOfRangeError(absl::StrCat("extent (offset ", extent.offset, ", length ",
                                              extent.length, ") reaches past the capacity of ",
                                              capacity, " bytes"));
  }
  if (closed_.load(std::memory_order_relaxed)) {
    return absl::FailedPreconditionError("the tracker is closed");
  }
  return absl::OkStatus();
}

bool ChangeTracker::Core::IsLogged(const OpenEpochState& epoch, Extent extent) const noexcept {
  const RegionLog* const log = epoch.log_in_use.load(std::memory_order_acquire);
  const uint64_t last = (extent.end() - 1) / options_.region_bytes;
  for (uint64_t region = extent.offset / options_.region_bytes; region <= last; ++region) {
    if (!log->Has(region)) return false;
  }
  return true;
}

// Waits for the disk. Epochs that were opened or logs that were renewed since the bitmaps were
// marked get the regions too, which does no harm.
absl::Status ChangeTracker::Core::Log(Extent extent) {
  std::array<std::shared_ptr<RegionLog>, 2> logs;
  {
    const std::lock_guard<std::mutex> lock(log_mutex_);
    for (size_t i = 0; i < 2; ++i) logs[i] = epochs_[i].log;
  }
  for (const std::shared_ptr<RegionLog>& log : logs) {
    if (log == nullptr) continue;
    absl::Status status =
        log->Add(extent.offset / options_.region_bytes, (extent.end() - 1) / options_.region_bytes);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Requires: the extent is inside and not empty.
ChangeTracker::Core::Marked ChangeTracker::Core::MarkBitmaps(Extent extent) noexcept {
  const uint64_t begin = BlockOf(extent.offset);
  const uint64_t end = BlockOf(extent.end() - 1) + 1;
  const Pinned pinned(*this);
  // Looked at under the pin: either Close() waits for this mark, or this sees that it has begun.
  if (closed_.load(std::memory_order_relaxed)) return Marked::kTooLate;
  OpenEpochState& older = epochs_[OldestOf(pinned.state())];
  older.bitmap->Mark(begin, end);
  bool logged = files_ == nullptr || IsLogged(older, extent);
  if ((pinned.state() & kBoth) != 0) {
    OpenEpochState& newer = epochs_[1 - OldestOf(pinned.state())];
    newer.bitmap->Mark(begin, end);
    logged &= files_ == nullptr || IsLogged(newer, extent);
  }
  return logged ? Marked::kDone : Marked::kNotLogged;
}

absl::Status ChangeTracker::Core::Announce(Extent extent) {
  switch (MarkBitmaps(extent)) {
    case Marked::kDone:
      return absl::OkStatus();
    case Marked::kNotLogged:
      return Log(extent);
    case Marked::kTooLate:
      break;
  }
  return absl::FailedPreconditionError("the tracker is closed");
}

// What most marks are: one epoch is open, and every bit of the range is set already. Nothing here
// may be slow, or marks don't overlap in the processor.
inline bool ChangeTracker::Core::IsMarked(Extent extent) noexcept {
  std::atomic<unsigned>* const place = pins_.OwnPlace();
  if (place == nullptr || files_ != nullptr) return false;
  const uint64_t begin = BlockOf(extent.offset);
  const uint64_t end = BlockOf(extent.end() - 1) + 1;
  const uint32_t state = state_.load(std::memory_order_relaxed);
  pins_.PinAt(*place, ParityOf(state));
  const bool marked = state_.load(std::memory_order_seq_cst) == state && (state & kBoth) == 0 &&
                      bitmaps_[OldestOf(state)]->HasAll(begin, end);
  PinTable::UnpinAt(*place);
  return marked;
}

absl::StatusOr<uint64_t> ChangeTracker::Core::BeginWrite(Extent extent) {
  if (!IsTrackable(extent)) {
    if (absl::Status status = CheckExtent(extent); !status.ok()) return status;
  }
  const uint64_t place = writes_.Add(extent.offset, extent.end());
  if (extent.length == 0 || IsMarked(extent)) return place;
  absl::Status status = Announce(extent);
  if (status.ok()) return place;
  writes_.Remove(place);
  return status;
}

absl::Status ChangeTracker::Core::Mark(Extent extent) {
  if (IsTrackable(extent) && IsMarked(extent)) return absl::OkStatus();
  return MarkSlowly(extent);
}

absl::Status ChangeTracker::Core::MarkSlowly(Extent extent) {
  absl::Status status = CheckExtent(extent);
  if (!status.ok() || extent.length == 0) return status;
  return Announce(extent);
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
    if (closed_number_.has_value()) {
      if (absl::Status status = files_->Forget(*closed_number_); !status.ok()) return status;
      closed_number_.reset();
    }
    absl::StatusOr<std::shared_ptr<RegionLog>> log = files_->CreateLog(HeaderOf(epoch));
    if (!log.ok()) {
      // Its file may be there all the same. If that stays, a crash gives an epoch back whose
      // snapshot was never taken.
      files_->Forget(epoch.number).IgnoreError();
      return log.status();
    }
    SetLog(epoch, *std::move(log));
  }
  ChangeState(older, true);
  absl::Status status;
  writes_.ForEach([&](uint64_t begin, uint64_t end) {
    if (begin == end) return;
    epoch.bitmap->Mark(BlockOf(begin), BlockOf(end - 1) + 1);
    if (files_ != nullptr && status.ok()) {
      status = epoch.log->Add(begin / options_.region_bytes, (end - 1) / options_.region_bytes);
    }
  });
  // Back to the older epoch, which has everything; where even that can't be written down, the two
  // stay open until CancelEpoch() succeeds.
  if (!status.ok() && files_->Forget(epoch.number).ok()) {
    ChangeState(older, false);
    SetLog(epoch, nullptr);
    epoch.bitmap->Clear();
  }
  return status;
}

ChangeMap ChangeTracker::Core::Named(ChangeMap map, const std::string& base,
                                     const std::string& target) const {
  map.set_identity({options_.volume, base, target});
  return map;
}

absl::StatusOr<ChangeMap> ChangeTracker::Core::CloseEpoch() {
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  if (!both()) return absl::FailedPreconditionError("only one epoch is open");
  const unsigned older = oldest();
  OpenEpochState& epoch = epochs_[older];
  OpenEpochState& newer = epochs_[1 - older];
  ChangeState(1 - older, false);
  absl::StatusOr<ChangeMap> map = epoch.bitmap->ToMap(options_.geometry);
  if (!map.ok()) {
    // What was announced meanwhile is in the newer epoch alone; CancelEpoch() brings it over.
    ChangeState(older, true);
    return map.status();
  }
  // Its files stay until the next epoch is opened: until then the caller may have brought the map
  // to a safe place, and after a crash before that it is there once more.
  SetLog(epoch, nullptr);
  epoch.bitmap->Clear();
  closed_number_ = epoch.number;
  return Named(*std::move(map), epoch.base, newer.base);
}

absl::Status ChangeTracker::Core::LogMap(const ChangeMap& map) {
  const std::unique_ptr<ExtentCursor> cursor = MakeChangeMapCursor(map);
  return ForEachBatch(*cursor, [this](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      if (absl::Status status = Log(batch[i]); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
}

absl::Status ChangeTracker::Core::CancelEpoch() {
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  if (!both()) return absl::FailedPreconditionError("only one epoch is open");
  const unsigned older = oldest();
  OpenEpochState& newer = epochs_[1 - older];
  absl::StatusOr<ChangeMap> map = newer.bitmap->ToMap(options_.geometry);
  if (!map.ok()) return map.status();
  // Usually all of it is there already, see CloseEpoch().
  epochs_[older].bitmap->MarkAll(*map);
  if (files_ != nullptr) {
    if (absl::Status status = LogMap(*map); !status.ok()) return status;
    // On disk first: an epoch that a crash gives back must have had every write.
    if (absl::Status status = files_->Forget(newer.number); !status.ok()) return status;
  }
  ChangeState(older, false);
  SetLog(newer, nullptr);
  newer.bitmap->Clear();
  return absl::OkStatus();
}

absl::StatusOr<ChangeMap> ChangeTracker::Core::Changes() const {
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  const OpenEpochState& epoch = epochs_[oldest()];
  absl::StatusOr<ChangeMap> map = epoch.bitmap->ToMap(options_.geometry);
  if (!map.ok()) return map.status();
  return Named(*std::move(map), epoch.base, {});
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
    absl::StatusOr<ChangeMap> map = epoch->bitmap->ToMap(options_.geometry);
    if (!map.ok()) return map.status();
    absl::Status status = files_->WriteMap(Named(*std::move(map), epoch->base, {}), epoch->number,
                                           epoch->generation, epoch->exact);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ChangeTracker::Core::Checkpoint() {
  if (files_ == nullptr) return absl::OkStatus();
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  if (closed_.load()) return absl::FailedPreconditionError("the tracker is closed");
  return CheckpointLocked();
}

absl::Status ChangeTracker::Core::Close() {
  const std::lock_guard<std::mutex> lock(epoch_mutex_);
  if (closed_.exchange(true) || files_ == nullptr) return absl::OkStatus();
  ChangeState(oldest(), both());
  for (OpenEpochState* const epoch : OpenEpochs()) {
    absl::StatusOr<ChangeMap> map = epoch->bitmap->ToMap(options_.geometry);
    if (!map.ok()) return map.status();
    // A map without a log of its generation: written in peace.
    absl::Status status = files_->WriteMap(Named(*std::move(map), epoch->base, {}), epoch->number,
                                           epoch->generation + 1, epoch->exact);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

ChangeTracker::ChangeTracker(std::unique_ptr<Core> core) : core_(std::move(core)) {}

ChangeTracker::~ChangeTracker() { Close().IgnoreError(); }

absl::StatusOr<std::unique_ptr<ChangeTracker>> ChangeTracker::Create(
    const TrackerOptions& options) {
  absl::StatusOr<std::unique_ptr<Core>> core = Core::Make(options);
  if (!core.ok()) return core.status();
  if ((*core)->files() != nullptr) {
    absl::StatusOr<bool> there = (*core)->files()->HasEpochs();
    if (!there.ok()) return there.status();
    if (*there) {
      return absl::AlreadyExistsError(
          absl::StrCat(options.directory, ": there is a tracker already"));
    }
  }
  if (absl::Status status = (*core)->Begin(); !status.ok()) return status;
  return std::unique_ptr<ChangeTracker>(new ChangeTracker(*std::move(core)));
}

absl::StatusOr<std::unique_ptr<ChangeTracker>> ChangeTracker::Recover(
    const TrackerOptions& options) {
  if (options.directory.empty()) {
    return absl::InvalidArgumentError("a tracker without a directory leaves nothing behind");
  }
  absl::StatusOr<std::unique_ptr<Core>> core = Core::Make(options);
  if (!core.ok()) return core.status();
  uint64_t next_number = 0;
  absl::StatusOr<std::vector<EpochFiles>> found =
      (*core)->files()->Read(options.volume, options.geometry, next_number);
  if (!found.ok()) return found.status();
  if (absl::Status status = (*core)->Restore(*std::move(found), next_number); !status.ok())
    return status;
  return std::unique_ptr<ChangeTracker>(new ChangeTracker(*std::move(core)));
}

absl::StatusOr<TrackedWrite> ChangeTracker::Begin(Extent extent) {
  absl::StatusOr<uint64_t> place = core_->BeginWrite(extent);
  if (!place.ok()) return place.status();
  return TrackedWrite(this, *place);
}

void TrackedWrite::End() noexcept {
  if (ChangeTracker* const tracker = std::exchange(tracker_, nullptr); tracker != nullptr) {
    tracker->End(place_);
  }
}

void ChangeTracker::End(uint64_t place) noexcept { core_->EndWrite(place); }
absl::Status ChangeTracker::Mark(Extent extent) { return core_->Mark(extent); }
absl::Status ChangeTracker::OpenEpoch(const std::string& name) { return core_->OpenEpoch(name); }
absl::StatusOr<ChangeMap> ChangeTracker::CloseEpoch() { return core_->CloseEpoch(); }
absl::Status ChangeTracker::CancelEpoch() { return core_->CancelEpoch(); }
absl::StatusOr<ChangeMap> ChangeTracker::Changes() const { return core_->Changes(); }
std::vector<ChangeTracker::Epoch> ChangeTracker::epochs() const { return core_->Epochs(); }
absl::Status ChangeTracker::Checkpoint() { return core_->Checkpoint(); }
absl::Status ChangeTracker::Close() { return core_->Close(); }

}  // namespace cbt

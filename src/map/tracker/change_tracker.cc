#include "cbt/change_tracker.h"

#include <array>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "map/tracker/tracker_access.h"
#include "map/tracker/tracker_core.h"

namespace cbt {

absl::Status ChangeTracker::Core::CheckExtent(Extent extent) const {
  if (absl::Status status = CheckProcess(); !status.ok()) return status;
  const uint64_t capacity = options_.geometry.capacity;
  if (extent.offset > capacity || extent.length > capacity - extent.offset) {
    return absl::OutOfRangeError(absl::StrCat("extent (offset ", extent.offset, ", length ",
                                              extent.length, ") extends past the capacity of ",
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

// Waits for the disk. Also adds the regions to epochs that were opened, and to logs that were
// renewed, since the bitmaps were marked, which is harmless.
absl::Status ChangeTracker::Core::Log(Extent extent) {
  std::array<std::shared_ptr<RegionLog>, 2> logs = Logs();
  for (;;) {
    absl::Status status;
    for (const std::shared_ptr<RegionLog>& log : logs) {
      if (log == nullptr || !status.ok()) continue;
      status = log->Add(extent.offset / options_.region_bytes,
                        (extent.end() - 1) / options_.region_bytes);
    }
    if (status.ok()) return status;
    // A log that is being replaced or dropped may already be gone from disk, and no longer matters:
    // wait for that to finish, then look again.
    { const std::lock_guard<std::mutex> over(epoch_mutex_); }
    std::array<std::shared_ptr<RegionLog>, 2> now = Logs();
    if (now == logs) return status;
    logs = std::move(now);
  }
}

std::array<std::shared_ptr<RegionLog>, 2> ChangeTracker::Core::Logs() {
  const std::lock_guard<std::mutex> lock(log_mutex_);
  return {epochs_[0].log, epochs_[1].log};
}

// Requires: the extent is inside and not empty.
ChangeTracker::Core::Marked ChangeTracker::Core::MarkBitmaps(Extent extent) noexcept {
  const uint64_t begin = BlockOf(extent.offset);
  const uint64_t end = BlockOf(extent.end() - 1) + 1;
  const Pinned pinned(*this);
  // Read under the pin: either Close() waits for this mark, or this sees that Close() has begun.
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

// The fast path of most marks: one epoch is open, and every bit of the range is set already.
// Nothing here may be slow, or consecutive marks don't overlap in the processor. Requires:
// IsFast(extent).
[[gnu::always_inline]] inline bool ChangeTracker::Core::IsMarked(Extent extent) noexcept {
  std::atomic<unsigned>* const place = pins_.OwnPlace();
  if (place == nullptr) return false;
  const uint64_t begin = extent.offset >> shift_;
  const uint64_t end = ((extent.end() - 1) >> shift_) + 1;
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
  if (extent.length == 0 || (IsFast(extent) && IsMarked(extent))) return place;
  absl::Status status;
  try {
    status = Announce(extent);
  } catch (...) {
    writes_.Remove(place);
    throw;
  }
  if (status.ok()) return place;
  writes_.Remove(place);
  return status;
}

absl::Status ChangeTracker::Core::MarkSlowly(Extent extent) {
  absl::Status status = CheckExtent(extent);
  if (!status.ok() || extent.length == 0) return status;
  return Announce(extent);
}

ChangeTracker::ChangeTracker(std::unique_ptr<Core> core) : core_(std::move(core)) {}

ChangeTracker::~ChangeTracker() {
  try {
    Close().IgnoreError();
  } catch (const std::bad_alloc&) {
    // Ignored, like any other error of Close().
  }
}

absl::StatusOr<std::unique_ptr<ChangeTracker>> ChangeTracker::Create(
    const TrackerOptions& options) {
  return TrackerAccess::CreateIn(options, nullptr);
}

absl::StatusOr<std::unique_ptr<ChangeTracker>> TrackerAccess::CreateIn(
    const TrackerOptions& options, const Directory* directory) {
  absl::StatusOr<std::unique_ptr<ChangeTracker::Core>> core =
      ChangeTracker::Core::Make(options, directory);
  if (!core.ok()) return core.status();
  if ((*core)->files() != nullptr) {
    absl::StatusOr<bool> used = (*core)->files()->IsUsed();
    if (!used.ok()) return used.status();
    if (*used) {
      return absl::AlreadyExistsError(absl::StrCat(
          options.directory, ": contains the files of a tracker; recover it or remove them"));
    }
  }
  if (absl::Status status = (*core)->Begin(); !status.ok()) return status;
  return std::unique_ptr<ChangeTracker>(new ChangeTracker(*std::move(core)));
}

absl::StatusOr<std::unique_ptr<ChangeTracker>> ChangeTracker::Recover(
    const TrackerOptions& options) {
  return TrackerAccess::RecoverIn(options, nullptr);
}

absl::StatusOr<std::unique_ptr<ChangeTracker>> TrackerAccess::RecoverIn(
    const TrackerOptions& options, const Directory* directory) {
  if (options.directory.empty()) {
    return absl::InvalidArgumentError("a tracker without a directory can't be recovered");
  }
  absl::StatusOr<std::unique_ptr<ChangeTracker::Core>> core =
      ChangeTracker::Core::Make(options, directory);
  if (!core.ok()) return core.status();
  absl::StatusOr<TrackerFiles::Contents> found =
      (*core)->files()->Read(options.volume, options.geometry);
  if (!found.ok()) return found.status();
  if (absl::Status status = (*core)->Restore(*std::move(found)); !status.ok()) return status;
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
absl::Status ChangeTracker::Mark(Extent extent) {
  Core& core = *core_;
  if (core.IsFast(extent) && core.IsMarked(extent)) return absl::OkStatus();
  return core.MarkSlowly(extent);
}
absl::Status ChangeTracker::OpenEpoch(const std::string& name) { return core_->OpenEpoch(name); }
absl::StatusOr<ChangeMap> ChangeTracker::CloseEpoch() { return core_->CloseEpoch(); }
absl::Status ChangeTracker::Acknowledge(const ChangeMapIdentity& map) {
  return core_->Acknowledge(map);
}
absl::Status ChangeTracker::CancelEpoch() { return core_->CancelEpoch(); }
absl::StatusOr<ChangeMap> ChangeTracker::Changes() const { return core_->Changes(); }
std::vector<ChangeTracker::Epoch> ChangeTracker::epochs() const { return core_->Epochs(); }
absl::Status ChangeTracker::Checkpoint() { return core_->Checkpoint(); }
absl::Status ChangeTracker::Close() { return core_->Close(); }

}  // namespace cbt

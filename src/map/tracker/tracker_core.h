// The implementation of ChangeTracker. The writers' part is in change_tracker.cc, that of epochs
// and files in tracker_epochs.cc.
#ifndef CBT_MAP_TRACKER_TRACKER_CORE_H_
#define CBT_MAP_TRACKER_TRACKER_CORE_H_

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/process_mark.h"
#include "cbt/change_tracker.h"
#include "map/tracker/dirty_bitmap.h"
#include "map/tracker/pin_table.h"
#include "map/tracker/region_log.h"
#include "map/tracker/tracker_files.h"
#include "map/tracker/write_table.h"

namespace cbt {

// How writers and epochs are synchronised.
//
// `state_` says which of the two bitmaps are open. A writer pins the state that it has read, reads
// it again, and if it is the same, marks the bitmaps and unpins. The thread that changes the state
// waits until no writer has pinned the old one: then a closed bitmap is complete, and an opened one
// misses no later write. PinTable explains why a writer either sees the new state or is seen.
//
// Writes that were announced before an epoch was opened and have not ended may reach the storage
// after its snapshot. They enter the write table before they read the state: either OpenEpoch()
// finds them there after it has changed the state, or they see the new state.
//
// The region log is consulted after the bitmaps are marked. A checkpoint installs new logs, changes
// the state and waits: every writer that relied on an old log has then marked the bitmaps that the
// checkpoint saves.
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

  // `directory`: in place of options.directory; null: that.
  static absl::StatusOr<std::unique_ptr<Core>> Make(const TrackerOptions& options,
                                                    const Directory* directory);

  absl::Status Begin();
  absl::Status Restore(TrackerFiles::Contents found);

  absl::StatusOr<uint64_t> BeginWrite(Extent extent);
  void EndWrite(uint64_t place) noexcept {
    // In a forked child the table may be locked forever, and is not used.
    if (process_.IsOurs()) writes_.Remove(place);
  }
  // Mark() is IsFast(), IsMarked(), and if either is false, MarkSlowly().
  // True for extents that IsMarked() can look up: IsTrackable(), and the tracker is in memory only,
  // with blocks of a power of two.
  bool IsFast(Extent extent) const noexcept {
    return extent.offset < fast_capacity_ && extent.length - 1 < fast_capacity_ - extent.offset &&
           !closed_.load(std::memory_order_relaxed) && process_.IsOurs();
  }
  bool IsMarked(Extent extent) noexcept;
  // Separate, so that fast marks don't save the registers that it needs.
  [[gnu::noinline]] absl::Status MarkSlowly(Extent extent);

  absl::Status OpenEpoch(const std::string& name);
  absl::StatusOr<ChangeMap> CloseEpoch();
  absl::Status Acknowledge(const ChangeMapIdentity& stored);
  absl::Status CancelEpoch();
  absl::StatusOr<ChangeMap> Changes() const;
  std::vector<ChangeTracker::Epoch> Epochs() const;
  absl::Status Checkpoint();
  absl::Status Close();

  TrackerFiles* files() const noexcept { return files_.get(); }
  // False in a forked child, which must change neither the storage nor the tracker's directory.
  // Check before taking any lock: another thread may have held it during fork().
  bool IsOurs() const noexcept { return process_.IsOurs(); }

 private:
  struct OpenEpochState {
    uint64_t number = 0;
    std::string base;
    bool exact = true;
    std::unique_ptr<DirtyBitmap> bitmap;
    std::shared_ptr<RegionLog> log;  // under log_mutex_
    std::atomic<RegionLog*> log_in_use{
        nullptr};  // the same, for threads that have pinned the state
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
        pin_ = pins_.Pin(ParityOf(state_));
        if (core.state_.load(std::memory_order_seq_cst) == state_) return;
        PinTable::Unpin(pin_);
      }
    }
    ~Pinned() { PinTable::Unpin(pin_); }
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;
    uint32_t state() const noexcept { return state_; }

   private:
    PinTable& pins_;
    PinTable::PinOf pin_;
    uint32_t state_ = 0;
  };

  // A division would cost more than the rest of a mark.
  uint64_t BlockOf(uint64_t offset) const noexcept {
    return shift_ >= 0 ? offset >> shift_ : offset / options_.geometry.granularity;
  }
  absl::Status CheckExtent(Extent extent) const;
  // True if the extent is inside, not empty, and the tracker is not closed.
  bool IsTrackable(Extent extent) const noexcept {
    const uint64_t capacity = options_.geometry.capacity;
    return extent.offset <= capacity && extent.length <= capacity - extent.offset &&
           extent.length != 0 && !closed_.load(std::memory_order_relaxed) && process_.IsOurs();
  }
  enum class Marked { kDone, kNotLogged, kTooLate };
  Marked MarkBitmaps(Extent extent) noexcept;
  absl::Status Announce(Extent extent);
  bool IsLogged(const OpenEpochState& epoch, Extent extent) const noexcept;
  absl::Status Log(Extent extent);
  std::array<std::shared_ptr<RegionLog>, 2> Logs();
  void ChangeState(unsigned oldest, bool both) noexcept;
  void SetLog(OpenEpochState& epoch, std::shared_ptr<RegionLog> log);
  absl::Status CheckProcess() const;
  absl::Status CheckOpen() const;
  absl::Status CheckBothOpen() const;
  absl::Status KeepClosed(const OpenEpochState& epoch, const ChangeMap& map);
  absl::StatusOr<std::shared_ptr<RegionLog>> CreateLog(const OpenEpochState& epoch);
  static TrackedEpoch NewlyTracked(const OpenEpochState& epoch, const RegionLog& log);
  TrackerManifest Described() const;
  absl::Status BeginOnDisk(OpenEpochState& epoch);
  absl::StatusOr<ChangeMap> MapOf(const OpenEpochState& epoch, const std::string& target) const;
  absl::Status MarkWritesInFlight(OpenEpochState& epoch);
  absl::Status MarkLateWrites(OpenEpochState& epoch);
  absl::Status CountAsOpen();
  absl::Status DropNewer();
  absl::Status CheckpointLocked();
  absl::Status WriteMaps(TrackerManifest& next);
  absl::Status LogMap(const OpenEpochState& epoch, const ChangeMap& map);

  unsigned oldest() const noexcept { return OldestOf(state_.load(std::memory_order_relaxed)); }
  bool both() const noexcept { return (state_.load(std::memory_order_relaxed) & kBoth) != 0; }
  std::vector<OpenEpochState*> OpenEpochs() {
    std::vector<OpenEpochState*> open = {&epochs_[oldest()]};
    if (both()) open.push_back(&epochs_[1 - oldest()]);
    return open;
  }

  PinTable pins_;  // first, so that its alignment needs no padding
  const ProcessMark process_;
  const TrackerOptions options_;
  const std::unique_ptr<TrackerFiles> files_;  // null: in memory only
  uint64_t id_ = 0;                            // of the tracker on disk
  // The map that the manifest's LateWrites name, and until that is written, their `until`. Guarded
  // by epoch_mutex_, like everything about epochs.
  std::optional<ChangeMap> late_;
  std::optional<uint64_t> late_until_;
  WriteTable writes_;
  std::array<OpenEpochState, 2> epochs_;
  std::array<const DirtyBitmap*, 2> bitmaps_;  // of epochs_
  const int shift_ = IsPowerOfTwo(options_.geometry.granularity)
                         ? std::countr_zero(options_.geometry.granularity)
                         : -1;
  // The capacity, or 0 if the fast path of marks does not apply.
  const uint64_t fast_capacity_ = files_ == nullptr && shift_ >= 0 ? options_.geometry.capacity : 0;
  std::atomic<uint32_t> state_{0};
  std::atomic<bool> closed_{false};
  bool written_down_ = false;  // Close() has succeeded
  // The newer epoch may lack writes, or not be on disk: it can only be cancelled.
  bool must_cancel_ = false;
  // One epoch is open, and the other one is closed and not acknowledged: its bitmap is its map.
  bool has_closed_ = false;
  mutable std::mutex epoch_mutex_;  // held while the state is changed
  std::mutex log_mutex_;
};

}  // namespace cbt

#endif  // CBT_MAP_TRACKER_TRACKER_CORE_H_

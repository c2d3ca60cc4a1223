// Live tracking, for plugins that own the write path: which blocks were written since a snapshot,
// queried while writes continue.
//
// A tracker records writes in epochs; an epoch begins at a snapshot and ends at a later one. While
// a snapshot is taken two epochs are open, and writes count in both:
//
//   tracker.OpenEpoch("tuesday")         // once it returns, writes count in the new epoch too
//   ... the storage takes the snapshot ...
//   map = tracker.CloseEpoch()           // what changed from Monday to Tuesday
//   ... the caller stores the map ...
//   tracker.Acknowledge(map.identity())  // the tracker may forget it
//
// A write is therefore in the epoch before the snapshot, in the one after it, or in both: whichever
// side of the snapshot its data falls on, at least that epoch has it. Writers never wait for a
// snapshot.
//
// With a directory, the tracker survives the process: before a write may reach a region of the
// volume (64 MiB by default), a log on disk records the region as possibly dirty.
//
//   what                             after Close()   after a crash
//   an open epoch                    exact           blocks as of the last Checkpoint(), and whole
//                                                    regions written to since: more, never less
//   two open epochs                  both, exact     both, if OpenEpoch() had returned and neither
//                                                    CloseEpoch() nor CancelEpoch() had
//   a closed epoch, see CloseEpoch() the same map    the same map
//   an acknowledged epoch            gone            gone
//
// epochs() reports which of these there are. After a crash, an epoch is exact again once it was
// opened after the epoch that saw the crash had been acknowledged.
//
// A killed process may have left writes in flight to the storage. Call Recover() only after they
// have ended: the process is gone, and network storage has completed or cancelled its I/O. As a
// second line of defence, everything that the newest epoch recorded before the crash counts in the
// next epoch as well, so that a write that lands before the end of that epoch is still in a map.
//
// A tracker belongs to the process that created it. In a forked child every call fails with
// FAILED_PRECONDITION and changes nothing, neither in memory nor on disk. A server that daemonises
// opens its tracker after its last fork(), or recovers it in the child once the parent has exited.
#ifndef CBT_CHANGE_TRACKER_H_
#define CBT_CHANGE_TRACKER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/extent.h"
#include "cbt/units.h"

namespace cbt {

struct TrackerOptions {
  VolumeGeometry geometry;

  // The volume, and the snapshot at which the first epoch begins; UTF-8, see ChangeMapIdentity.
  std::string volume = {};
  std::string base = {};

  // The directory of the tracker, used by it alone (created if missing, but not its parents). The
  // tracker keeps a descriptor to it, so the directory may be moved and the working directory may
  // change. A copy of the directory is a separate tracker that misses everything after the copy. On
  // file systems that can't lock directories (NFS), the file LOCK in it must not be removed. Empty:
  // in memory only.
  std::string directory = {};

  // The unit in bytes in which the log records possibly dirty data: a multiple of the granularity.
  // Smaller regions over-report less after a crash but cost more synchronous log writes: one per
  // region written to between two checkpoints.
  uint64_t region_bytes = 64 * kMiB;

  // Distinguishes the files of this tracker from those of other trackers of the same volume,
  // including an earlier one in the same directory. 0: a random number. Ignored by Recover().
  uint64_t id = 0;

  // The number of writes in flight that need no lock; any beyond it take one.
  size_t writes_in_flight = 1024;
};

class ChangeTracker;

// A write in flight, from before its data may reach the storage until after it has. Movable. The
// destructor ends the write; it must run before the tracker's.
class TrackedWrite {
 public:
  TrackedWrite() = default;
  ~TrackedWrite() { End(); }
  TrackedWrite(const TrackedWrite&) = delete;
  TrackedWrite& operator=(const TrackedWrite&) = delete;
  TrackedWrite(TrackedWrite&& other) noexcept
      : tracker_(std::exchange(other.tracker_, nullptr)), place_(other.place_) {}
  TrackedWrite& operator=(TrackedWrite&& other) noexcept {
    std::swap(tracker_, other.tracker_);
    std::swap(place_, other.place_);
    return *this;
  }

  // Ends the write: its data is in the storage.
  void End() noexcept;

 private:
  friend class ChangeTracker;
  TrackedWrite(ChangeTracker* tracker, uint64_t place) noexcept
      : tracker_(tracker), place_(place) {}

  ChangeTracker* tracker_ = nullptr;
  uint64_t place_ = 0;
};

// Thread-safe. Functions that change epochs or write checkpoints wait for each other; writers wait
// for none of them. A signal handler may call Mark() while its thread is in another call, provided
// that the thread has called Mark() before and the tracker is in memory only.
class ChangeTracker {
 public:
  // A tracker in which nothing has changed since `options.base`. Takes two bits of virtual memory
  // per block; only what covers written blocks becomes resident.
  // Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED for memory; ALREADY_EXISTS if the directory holds
  //         a tracker's files (which may know of changes: use Recover()), UNAVAILABLE if another
  //         process or object has it open, file errors.
  static absl::StatusOr<std::unique_ptr<ChangeTracker>> Create(const TrackerOptions& options);

  // The tracker that was left in `options.directory`, closed or not; geometry and volume in the
  // options must match. Look at epochs() then:
  //
  //   one epoch                     continue
  //   two epochs, both open         the process ended around the snapshot epochs()[1].base: if it
  //                                 was taken, call CloseEpoch(), otherwise CancelEpoch()
  //   two epochs, the first closed  its map may not have been stored: call CloseEpoch(), which
  //                                 returns the map once more, store it and call Acknowledge()
  //
  // Errors: NOT_FOUND without a tracker, FAILED_PRECONDITION for another volume or geometry,
  //         UNAVAILABLE if another process or object has it open, DATA_LOSS if the changes can't be
  //         determined: remove the directory, Create() a tracker and take a full backup.
  static absl::StatusOr<std::unique_ptr<ChangeTracker>> Recover(const TrackerOptions& options);

  // Calls Close(). If that fails the error is lost, and the next Recover() over-reports.
  ~ChangeTracker();
  ChangeTracker(const ChangeTracker&) = delete;
  ChangeTracker& operator=(const ChangeTracker&) = delete;

  // Announces a write to `extent` (bytes) before it is issued. Lock-free, except for the first
  // write to a region since the last checkpoint, which waits for the log on disk.
  // Errors: OUT_OF_RANGE past the capacity; any error of the log (DATA_LOSS if it was removed),
  //         repeated until a Checkpoint() succeeds. After an error the write must not be issued: a
  //         crash would lose the change.
  absl::StatusOr<TrackedWrite> Begin(Extent extent);

  // As Begin(), without an end. For callers that keep writes and snapshots apart themselves: no
  // write may be in flight between OpenEpoch() and CloseEpoch().
  absl::Status Mark(Extent extent);

  // Begins an epoch at the snapshot `name`. Take the snapshot after this returns.
  // Errors: FAILED_PRECONDITION if two epochs are open, if a closed one has not been acknowledged,
  //         or after Close(); INVALID_ARGUMENT for the name, file errors. The tracker is then
  //         unchanged, unless the disk fails so badly that two epochs stay open (see epochs()):
  //         then CancelEpoch() must succeed before any epoch is opened or closed.
  absl::Status OpenEpoch(const std::string& name);

  // Ends the older epoch and returns what changed up to the snapshot at which the newer one began
  // (and possibly a little after it). The map's identity names both snapshots. The tracker keeps
  // the map, on disk if it has a directory, until Acknowledge(): until then, further calls return
  // it again, in this process and after Recover().
  // Errors: FAILED_PRECONDITION after Close(), if there is only one epoch, or if opening or
  //         cancelling the newer one failed: it may lack writes then, so cancel it. If the map
  //         can't be built or kept, both epochs stay open.
  absl::StatusOr<ChangeMap> CloseEpoch();

  // The caller has stored the map that CloseEpoch() returned, or does not need it; `map` is its
  // identity(). The tracker drops the epoch.
  // Errors: FAILED_PRECONDITION if no epoch is closed or after Close(), INVALID_ARGUMENT if `map`
  //         names another one; file errors, after which the epoch is still closed, and may be gone
  //         after Recover().
  absl::Status Acknowledge(const ChangeMapIdentity& map);

  // Drops the newer epoch because its snapshot was not taken; the older one continues.
  // Errors: FAILED_PRECONDITION if only one epoch is open (a closed one stays closed: it ended at
  //         a snapshot) or after Close(); file errors, after which both stay open.
  absl::Status CancelEpoch();

  // What has changed in the oldest open epoch so far: everything announced before the call, and
  // possibly some writes announced during it.
  absl::StatusOr<ChangeMap> Changes() const;

  struct Epoch {
    std::string base;  // the snapshot at which it began
    // Ended by CloseEpoch(), and not acknowledged.
    bool closed = false;
    // False if the epoch went through a crash or began after one: it then counts whole regions, or
    // writes that may have landed late.
    bool exact = true;
  };
  // The epochs that the tracker has, oldest first: an open one, and before it possibly another that
  // is open or closed. Empty in a forked child.
  std::vector<Epoch> epochs() const;

  // Saves the exact state and starts new logs, so that a crash over-reports only regions written to
  // from now on. Does nothing without a directory.
  absl::Status Checkpoint();

  // Saves the exact state; the epochs are kept. No write may be announced afterwards. If a write
  // has not ended, the next Recover() treats the tracker as crashed. Does nothing if it has already
  // succeeded.
  absl::Status Close();

 private:
  friend class TrackedWrite;
  friend class TrackerAccess;
  class Core;
  explicit ChangeTracker(std::unique_ptr<Core> core);
  void End(uint64_t place) noexcept;

  const std::unique_ptr<Core> core_;
};

}  // namespace cbt

#endif  // CBT_CHANGE_TRACKER_H_

// Live tracking, for plugins that own the write path: which blocks were written since a snapshot,
// told while writers go on.
//
// A tracker counts in epochs; an epoch begins at a snapshot and ends at a later one. Around the
// moment of a snapshot two epochs are open, and writes count in both:
//
//   tracker.OpenEpoch("tuesday")       // from its return on, writes count in the new epoch too
//   ... the storage takes the snapshot ...
//   map = tracker.CloseEpoch()         // what changed from Monday to Tuesday
//
// so that a write is in the epoch before the snapshot, in the one after it or in both, whichever
// side of it its data comes to lie on, and never in neither. Writers never wait for a snapshot.
//
// With a directory the tracker survives the process: before a write may reach a region of the
// volume (64 MiB, say) the region is put down as possibly dirty in a log on disk. After a crash all
// of those regions count as changed: more than was written, never less.
//
// A process that was killed may have writes on their way to the storage. Recover() a tracker when
// they have ended: when the process has gone, and the storage, over a network, has completed or
// cancelled its I/O. As a second line of defence everything that the newest epoch knew at the crash
// counts in the next epoch as well: a write that lands up to the end of that one is in a map.
//
// A tracker belongs to the process that made it. In a copy of that process (fork()) every call
// fails with FAILED_PRECONDITION and changes nothing, on disk either: a server that becomes a
// daemon opens its tracker after its last fork(), or recovers it there once its parent has gone.
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

namespace cbt {

struct TrackerOptions {
  VolumeGeometry geometry;

  // The volume, and the snapshot at which the first epoch begins. UTF-8, see ChangeMapIdentity.
  std::string volume = {};
  std::string base = {};

  // Where the tracker is kept, a folder of its own (made if it is not there; no parents). Known by
  // a descriptor from then on: moving it or changing the working directory does not matter. A copy
  // of the folder is another tracker, which knows of nothing that came after the copy. On file
  // systems that can't lock folders (NFS) the file LOCK in it must stay where it is. Empty: in
  // memory only.
  std::string directory = {};

  // Bytes that are put down as possibly dirty at once: a multiple of the granularity. Smaller ones
  // over-report less after a crash and cost more synchronous log writes, one for each region that
  // is written to between two checkpoints.
  uint64_t region_bytes = uint64_t{64} << 20;

  // Tells the files of this tracker from those of others of the same volume, also of one that was
  // in the same folder before. 0: a random number. Of no account to Recover().
  uint64_t id = 0;

  // Writes in flight that cost no lock; more than that take one.
  size_t writes_in_flight = 1024;
};

class ChangeTracker;

// A write in flight: from before its data may reach the storage until after it has. Movable; ends
// at the latest when it dies, which must be before the tracker does.
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

  // The data is where it will stay.
  void End() noexcept;

 private:
  friend class ChangeTracker;
  TrackedWrite(ChangeTracker* tracker, uint64_t place) noexcept
      : tracker_(tracker), place_(place) {}

  ChangeTracker* tracker_ = nullptr;
  uint64_t place_ = 0;
};

// All functions may be called from any thread at any time. Those that change epochs or write
// checkpoints take turns with each other; writers wait for none of them. A signal handler may call
// Mark() while its thread is in another one, if the thread has marked before and the tracker is in
// memory only.
class ChangeTracker {
 public:
  // A tracker in which nothing has changed since `options.base`. Two bits a block of virtual
  // memory, touched where writes go. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED for memory;
  // ALREADY_EXISTS when the directory holds
  //         files of a tracker (it might know of changes: Recover() it), UNAVAILABLE when another
  //         process or object has it, those of files.
  static absl::StatusOr<std::unique_ptr<ChangeTracker>> Create(const TrackerOptions& options);

  // The tracker that was left in `options.directory`, closed or not; of the options, the geometry
  // and the volume must be the same ones. When it was left between OpenEpoch() and CloseEpoch() (or
  // soon after that), both epochs are open again: whoever knows whether the snapshot was taken
  // calls CloseEpoch() or CancelEpoch().
  // Errors: NOT_FOUND when there is none, FAILED_PRECONDITION for another volume or geometry,
  //         UNAVAILABLE when another process or object has it, DATA_LOSS when it can't be known
  //         what has changed: remove the directory, Create() a tracker and take a full backup.
  static absl::StatusOr<std::unique_ptr<ChangeTracker>> Recover(const TrackerOptions& options);

  // Closes, see Close(); an error of that is lost, and the next Recover() over-reports.
  ~ChangeTracker();
  ChangeTracker(const ChangeTracker&) = delete;
  ChangeTracker& operator=(const ChangeTracker&) = delete;

  // Announces a write to `extent` (bytes) before it is issued. Lock-free but for the first write to
  // a region since the last checkpoint, which waits for the log on disk.
  // Errors: OUT_OF_RANGE past the capacity; what the log says (DATA_LOSS when somebody removed it),
  //         until a Checkpoint() has succeeded: the write must not be issued then, or a crash would
  //         lose it.
  absl::StatusOr<TrackedWrite> Begin(Extent extent);

  // For callers who keep writes and snapshots apart by themselves (no write is in flight between
  // OpenEpoch() and CloseEpoch()): the same without an end.
  absl::Status Mark(Extent extent);

  // Begins an epoch at the snapshot `name`, which is to be taken after this has returned.
  // Errors: FAILED_PRECONDITION when two epochs are open, INVALID_ARGUMENT for the name, those of
  //         files: the tracker is as it was then, unless the disk fails so thoroughly that two
  //         epochs stay open, see epochs(); CancelEpoch() must succeed then before any epoch is
  //         opened or closed. FAILED_PRECONDITION after Close(), as for the two below.
  absl::Status OpenEpoch(const std::string& name);

  // Ends the older epoch: what has changed up to the snapshot at which the newer one began (and
  // perhaps a little after it). The identity names both.
  // Errors: FAILED_PRECONDITION when only one epoch is open, or when opening or cancelling the
  //         newer one failed, which may lack writes then: cancel it. When the map can't be built
  //         the epochs stay as they are.
  absl::StatusOr<ChangeMap> CloseEpoch();

  // The snapshot was not taken: the newer epoch is forgotten, the older one goes on.
  // Errors: FAILED_PRECONDITION when only one epoch is open; those of files: both stay open.
  absl::Status CancelEpoch();

  // What has changed in the oldest open epoch up to now: everything that was announced before the
  // call, and perhaps some of what came during it.
  absl::StatusOr<ChangeMap> Changes() const;

  struct Epoch {
    std::string base;
    // False when it went through a crash, or began after one: regions, or writes that may have
    // landed late, stand for blocks in it.
    bool exact = true;
  };
  // The open epochs, oldest first: one or two; none in a copy of the process.
  std::vector<Epoch> epochs() const;

  // Writes the exact state down and starts new logs, so that a crash over-reports only what is
  // written to from now on. Does nothing without a directory.
  absl::Status Checkpoint();

  // Writes the exact state down. Nothing may be announced any more, and the epochs stay as they
  // are. A write that has not ended makes it an end like a crash. Does nothing after it has
  // succeeded.
  absl::Status Close();

 private:
  friend class TrackedWrite;
  class Core;
  explicit ChangeTracker(std::unique_ptr<Core> core);
  void End(uint64_t place) noexcept;

  const std::unique_ptr<Core> core_;
};

}  // namespace cbt

#endif  // CBT_CHANGE_TRACKER_H_

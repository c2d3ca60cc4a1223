// A volume in a directory that tracks its own writes, takes snapshots, and reports the delta of any
// two of them without reading data.
//
//   auto volume = volume::TrackedVolume::Open("/srv/volumes/v1");
//   (*volume)->Write(0, bytes, Durability::kFlushed);
//   (*volume)->TakeSnapshot("monday");
//   ...
//   (*volume)->TakeSnapshot("tuesday");
//   auto delta = (*volume)->Delta("monday", "tuesday");  // an ExtentCursor
//
// The directory, which one process at a time may have open for changes:
//
//   MANIFEST        name, capacity, granularity, which tracker is in use
//   data            the volume, a sparse file of its capacity
//   CLOSED          how `data` was when the volume was closed
//   REVERT          the snapshot to which the volume is going back; missing otherwise
//   tracker-N/      the ChangeTracker: what was written since the newest snapshot
//   chain/          the ChangeChain: what changed between neighbouring snapshots
//   snapshots/ID    the data of a snapshot (ID#N if the id was used before), a sparse file that
//                   never changes; its modification time is the time of the snapshot
//   marks/ID        empty: snapshot ID was deleted, and the chain keeps its moment
//   copying/ID      the same while it is being made, and ID~copied: which regions have been copied
//
// Every write is marked in the tracker before it is issued, so a process that is killed loses no
// mark. What that costs in exactness is ChangeTracker's table: after a kill, deltas that include
// the time of the kill may report whole regions, never less than was written.
//
// Snapshots. Where the file system clones files (XFS, btrfs), writes are held while the file is
// cloned. Elsewhere they are held for a moment, and the snapshot is copied in the background:
// before the first write to a region that has not been copied, the region is copied. A snapshot
// that is being copied is not ready. If the process ends meanwhile, for whatever reason, the next
// Open() continues the copy. If the copy fails, the snapshot is dropped as if it had been deleted,
// and can be taken anew.
#ifndef CBT_PROGRAMS_VOLUME_TRACKED_VOLUME_H_
#define CBT_PROGRAMS_VOLUME_TRACKED_VOLUME_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/extent.h"
#include "cbt/units.h"
#include "programs/volume/snapshot_info.h"

namespace cbt::volume {

class WriteGate;

struct CreateOptions {
  // The identity of the volume in its maps; UTF-8, at most kMaxMapNameBytes. Empty: a random one.
  std::string name = {};

  // A file or block device whose contents the volume starts with: a snapshot's PathOf(), or any raw
  // image. Cloned if the file system can, else copied without its holes. It must not change
  // meanwhile. Its size must not exceed the capacity; what is beyond it reads as zeros.
  std::string image = {};

  // The unit in bytes in which changes are tracked: a power of two, 512 bytes to 64 MiB.
  uint64_t granularity = 4 * kKiB;

  // See TrackerOptions: a multiple of the granularity.
  uint64_t region_bytes = 64 * kMiB;
};

struct OpenOptions {
  // Snapshots are copied even where the file system can clone files.
  bool always_copy = false;

  // How often the exact state of the tracker is saved while there are writes: a kill over-reports
  // the regions that were written to since. Each time costs synchronous log writes, one per
  // region that is written to afterwards. 0: only at snapshots and Close().
  unsigned checkpoint_seconds = 600;
};

// When a write counts as complete.
enum class Durability {
  kCached,   // once readers see it; a power failure may lose it before the next Flush()
  kFlushed,  // once it is on disk (FUA)
};

// What Zero() may cost.
enum class ZeroCost {
  kAny,       // where the file system can't do it, zeros are written
  kFastOnly,  // no data is written or copied
};

// What the volume holds somewhere.
struct VolumeExtent {
  Extent extent = {};
  bool hole = false;  // not allocated, reads as zeros

  friend bool operator==(const VolumeExtent&, const VolumeExtent&) = default;
};

// A volume's state. Counters are of this object, since Open().
struct VolumeStatus {
  std::string name = {};
  uint64_t capacity = 0;     // bytes
  uint64_t granularity = 0;  // bytes
  uint64_t snapshots = 0;
  uint64_t copying = 0;  // snapshots that are not ready
  uint64_t marks = 0;    // see DeleteSnapshot()
  // Bytes in blocks that may have changed since the newest snapshot, or since Create().
  uint64_t changed_bytes = 0;
  // False if a kill made changed_bytes more than was written, see ChangeTracker::Epoch, or if
  // Open() found the data changed. Resize() and Close() forget that, not what was counted.
  bool exact = true;
  bool clones =
      false;  // snapshots are clones; false before the first one and where they are copied
  uint64_t longest_hold_ns = 0;  // the longest time for which a snapshot held writes
  // The last error of background work: a copy that failed, a checkpoint; or that Open() found the
  // data changed. Empty if there was none.
  std::string last_error = {};
};

// Writes to a volume are held while it exists. Must not outlive the volume.
class WriteHold {
 public:
  explicit WriteHold(WriteGate& gate);
  WriteHold(WriteHold&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
  WriteHold& operator=(WriteHold&&) = delete;
  ~WriteHold();

 private:
  WriteGate* gate_;
};

// Thread-safe. Read(), Write(), Zero(), Trim(), Flush() and Extents() run in parallel and wait for
// nothing but the disk, a moment of each TakeSnapshot() and Resize(), and the copy of a region (256
// KiB) for an unfinished snapshot. TakeSnapshot(), DeleteSnapshot(), Resize() and Revert() run one
// at a time; others wait. In a forked child every call fails with FAILED_PRECONDITION.
//
// Errors of all I/O: OUT_OF_RANGE past the capacity; RESOURCE_EXHAUSTED if the disk is full,
// UNAVAILABLE or others as FileError(). A write that failed may have been done in part, and is
// marked. Errors of the tracker's log (see ChangeTracker::Begin()) fail the write before it is
// issued; writes succeed again once the log can be written.
class TrackedVolume {
 public:
  // Makes a volume of `capacity` bytes (1 .. kMaxCapacity) in `directory`, which is created if
  // missing, but not its parents. Durable when it returns. A directory in which an earlier Create()
  // was interrupted may be used again: what that left is replaced.
  // Errors: ALREADY_EXISTS if there is a volume, FAILED_PRECONDITION if there are other files,
  //         UNAVAILABLE if another process has it open, INVALID_ARGUMENT for options, OUT_OF_RANGE
  //         if the image is larger than the capacity; DATA_LOSS if there are parts of a volume that
  //         has lost its manifest (nothing is deleted); file errors. The directory may then hold part
  //         of a volume, which Open() takes for none, and Create() and Remove() replace.
  static absl::Status Create(const std::string& directory, uint64_t capacity,
                             const CreateOptions& options = {});

  // Deletes a volume with its snapshots, or what an interrupted Create() or Remove() left, and the
  // directory. From the beginning of it, Open() takes the directory for no volume.
  // Errors: UNAVAILABLE if a process has it open, NOT_FOUND without a directory,
  //         FAILED_PRECONDITION if the directory holds files that are no volume's (nothing is
  //         deleted); file errors, after which the call can be repeated.
  static absl::Status Remove(const std::string& directory);

  // Opens a volume for changes, and finishes what a killed process had begun: a snapshot whose file
  // is complete is in the chain afterwards, another is continued or dropped. If somebody has
  // changed `data` since Close(), everything counts as changed since the newest snapshot, and an
  // unfinished snapshot is dropped; VolumeStatus::last_error says so. Such a change is not found if
  // the volume was not closed before.
  // Errors: NOT_FOUND without a volume, UNAVAILABLE if another process or object has it open,
  //         DATA_LOSS if a part is damaged or missing; file errors.
  static absl::StatusOr<std::unique_ptr<TrackedVolume>> Open(const std::string& directory,
                                                             const OpenOptions& options = {});

  // Calls Close(). If that fails the error is lost, and deltas over-report.
  ~TrackedVolume();
  TrackedVolume(const TrackedVolume&) = delete;
  TrackedVolume& operator=(const TrackedVolume&) = delete;

  // Bytes. Grows with Resize().
  uint64_t capacity() const noexcept;
  uint64_t granularity() const noexcept;
  const std::string& name() const noexcept;

  // Reads out.size() bytes at `offset`.
  absl::Status Read(uint64_t offset, std::span<uint8_t> out) const;

  absl::Status Write(uint64_t offset, std::span<const uint8_t> bytes, Durability durability);

  // Makes the range read as zeros. `may_trim`: may release its space; otherwise the range stays
  // allocated, where the file system can do that.
  // Errors: UNIMPLEMENTED if it is not fast now; the range is unchanged then.
  absl::Status Zero(Extent extent, bool may_trim, Durability durability,
                    ZeroCost cost = ZeroCost::kAny);

  // Releases the space of the range; it reads as zeros afterwards where the file system supports
  // holes, and is unchanged elsewhere. Counts as a change.
  absl::Status Trim(Extent extent, Durability durability);

  // Returns once every write that had completed before the call is on disk.
  absl::Status Flush();

  // What the range [extent.offset, extent.end()) holds: adjoining parts in order that cover it or
  // its beginning, at most `most` (> 0) of them.
  absl::StatusOr<std::vector<VolumeExtent>> Extents(Extent extent, size_t most) const;

  // Grows the volume to `capacity` bytes; nothing to do if it has that already. The new part reads
  // as zeros and counts as unchanged until it is written. Writes are held for a few synchronous
  // writes to disk.
  // Errors: OUT_OF_RANGE if it would shrink or exceeds kMaxCapacity; RESOURCE_EXHAUSTED, file
  //         errors: the capacity is then unchanged.
  absl::Status Resize(uint64_t capacity);

  // Takes a snapshot; if the volume has one of this id, returns that. Durable when it returns, but
  // see SnapshotInfo::ready. Writes that had completed before the call are in it, writes that begin
  // after it has returned are not. A write that runs meanwhile may count in the deltas on both
  // sides of the snapshot; any other counts in exactly one.
  // Errors: INVALID_ARGUMENT for the id; RESOURCE_EXHAUSTED if the disk is full, other file errors:
  //         there is no snapshot then, and the call can be repeated.
  absl::StatusOr<SnapshotInfo> TakeSnapshot(const std::string& id);

  // Holds writes, trims and zeroes back until the result is destroyed: those under way end first,
  // and none begins. Snapshots can be taken meanwhile, and Revert() is refused. Snapshots of several
  // volumes are of one moment if each is taken while its volume is held and after all of them were:
  // a write is in its snapshot if another one began after it had ended and is in its own.
  // Errors: FAILED_PRECONDITION if the volume is closed, UNAVAILABLE while it goes back.
  absl::StatusOr<WriteHold> HoldWrites();

  // Deletes a snapshot at any position, ready or not; OK without one. Deltas over it stay: the
  // maps on both sides of it are united. The id can be used again.
  //
  // With `marks`, its moment stays in the chain as a mark, a base for Delta() without data, and of
  // the volume's marks as many stay as the limits allow. Without, none is made and none removed. A
  // mark is gone once its id is used again, and where there is no room on disk to make it.
  //
  // Errors: INVALID_ARGUMENT for the id; file errors: the call can be repeated, and the snapshot
  //         may be gone.
  absl::Status DeleteSnapshot(const std::string& id,
                              const std::optional<MarkLimits>& marks = std::nullopt);

  // Makes the contents those of a snapshot again. The capacity and all snapshots stay; what is
  // beyond the snapshot's size reads as zeros. Whatever changed since the snapshot counts as
  // changed once more, so deltas over the revert are complete from any base, and as exact as
  // before. Durable when it returns. Meanwhile I/O fails with UNAVAILABLE, and so may other calls.
  //
  // If it fails or is killed halfway, no caller sees the mixture: every call fails with
  // UNAVAILABLE, and the next Open() finishes it, or fails.
  //
  // Errors: INVALID_ARGUMENT for the id, NOT_FOUND; UNAVAILABLE while the snapshot is being copied;
  //         FAILED_PRECONDITION while somebody is attached or writes are held; DATA_LOSS if the
  //         snapshot's file has another size; RESOURCE_EXHAUSTED, file errors.
  // Cost:   what changed since the snapshot is cloned or copied.
  absl::Status Revert(const std::string& id);

  // For users that remember what they have read, as clients of NBD do: Revert() is refused from
  // Attach() until Detach(), of which each is called once.
  // Errors: UNAVAILABLE during Revert().
  absl::Status Attach();
  void Detach() noexcept;

  // Oldest first.
  std::vector<SnapshotInfo> snapshots() const;
  std::vector<SnapshotMark> marks() const;
  // Errors: NOT_FOUND.
  absl::StatusOr<SnapshotInfo> FindSnapshot(std::string_view id) const;

  // The file with a snapshot's data, a raw image of SnapshotInfo::size bytes. Never write to it.
  // Errors: NOT_FOUND; UNAVAILABLE while it is being copied; ABORTED if the directory was moved
  //         since Open(), so that its path names something else.
  absl::StatusOr<std::string> SnapshotPath(std::string_view id) const;

  // What changed from snapshot or mark `base` to snapshot `target`; capacity() is the target's
  // size. Reads no data. The cursor stays valid after changes of the volume, and without it.
  // Errors: NOT_FOUND; INVALID_ARGUMENT if the base is newer; UNAVAILABLE while one of them is
  //         being copied; as ChangeChain::Delta().
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(std::string_view base,
                                                      std::string_view target) const;

  // The allocated parts of a snapshot: its file without the holes. Reads no data.
  // Errors: NOT_FOUND; UNAVAILABLE while it is being copied; those of MakeImageAllocationCursor().
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Allocated(std::string_view id) const;

  VolumeStatus status() const;

  // Waits until no snapshot is being copied, or for `seconds`; true if none is.
  bool WaitForCopies(double seconds) const;

  // Flushes, ends background work (a copy continues at the next Open()), saves the exact state, and
  // lets the directory go. Every later call fails with FAILED_PRECONDITION. Waits for calls that
  // run.
  absl::Status Close();

 private:
  class Core;
  explicit TrackedVolume(std::unique_ptr<Core> core);

  const std::unique_ptr<Core> core_;
};

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_TRACKED_VOLUME_H_

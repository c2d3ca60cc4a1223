// An open volume: its parts, and the order in which they change.
#ifndef CBT_PROGRAMS_VOLUME_VOLUME_CORE_H_
#define CBT_PROGRAMS_VOLUME_VOLUME_CORE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/directory.h"
#include "base/process_mark.h"
#include "cbt/change_tracker.h"
#include "programs/volume/data_file.h"
#include "programs/volume/snapshot_copy.h"
#include "programs/volume/snapshot_files.h"
#include "programs/volume/tracked_volume.h"
#include "programs/volume/volume_history.h"
#include "programs/volume/volume_manifest.h"
#include "programs/volume/volume_worker.h"
#include "programs/volume/write_gate.h"

namespace cbt::volume {

// Two groups of functions. I/O passes the gate and takes no lock. Administration (snapshots,
// resizing, reverting, background work) runs one at a time under `admin_`, and holds the gate to
// change what I/O looks at: the tracker, the capacity, the list of copies.
class TrackedVolume::Core {
 public:
  Core(const std::string& path, const OpenOptions& options) : path_(path), options_(options) {}

  // Recovers, and starts background work.
  absl::Status Open();
  absl::Status Close();

  // I/O.
  absl::Status Read(uint64_t offset, std::span<uint8_t> out) const;
  absl::Status Write(uint64_t offset, std::span<const uint8_t> bytes, Durability durability);
  absl::Status Zero(Extent extent, bool may_trim, Durability durability, ZeroCost cost);
  absl::Status Trim(Extent extent, Durability durability);
  absl::Status Flush();
  absl::StatusOr<std::vector<VolumeExtent>> Extents(Extent extent, size_t most) const;

  // Administration: volume_admin.cc.
  absl::StatusOr<WriteHold> HoldWrites();
  absl::StatusOr<SnapshotInfo> TakeSnapshot(const std::string& id);
  absl::Status DeleteSnapshot(const std::string& id, const std::optional<MarkLimits>& marks);
  absl::Status Resize(uint64_t capacity);
  absl::Status Revert(const std::string& id);
  absl::Status Attach();
  void Detach() noexcept;

  // Questions.
  std::vector<SnapshotInfo> snapshots() const { return history_.snapshots(); }
  std::vector<SnapshotMark> marks() const { return history_.marks(); }
  absl::StatusOr<SnapshotInfo> FindSnapshot(std::string_view id) const;
  absl::StatusOr<std::string> SnapshotPath(std::string_view id) const;
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(std::string_view base,
                                                      std::string_view target) const;
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Allocated(std::string_view id) const;
  VolumeStatus status() const;
  bool WaitForCopies(double seconds) const { return worker_.WaitForCopies(seconds); }

  uint64_t capacity() const noexcept { return capacity_.load(std::memory_order_acquire); }
  uint64_t granularity() const noexcept { return manifest_.granularity; }
  const std::string& name() const noexcept { return manifest_.name; }

 private:
  // OK while the volume is open in this process.
  absl::Status CheckUsable() const;
  static absl::Status Reverting();
  absl::Status CheckInside(Extent extent) const;
  // Runs `change`, which returns an error number, between the marks of the tracker.
  template <typename Change>
  absl::Status Changing(Extent extent, Change change, ZeroCost cost = ZeroCost::kAny);
  void NoteError(const absl::Status& status) { worker_.NoteError(status); }

  absl::Status OpenParts();
  absl::Status CompareWithClosed();
  absl::Status OpenHistory();
  VolumeWorker::Tasks Background();
  void FinishCopy(const std::shared_ptr<SnapshotCopy>& copy);
  absl::Status Repair();
  void Checkpoint();

  // Below, all requires admin_.

  // Brings the tracker back to one epoch: the snapshot that it was opened for is in the chain
  // afterwards, or was cancelled if it has no file.
  absl::Status FinishEpoch();
  // Removes a snapshot's data, and its record.
  absl::Status DropFiles(const std::string& name);
  // Drops a snapshot that is being copied.
  absl::Status DropCopy(const std::shared_ptr<SnapshotCopy>& copy);
  absl::Status SwitchTracker(const VolumeManifest& next, std::unique_ptr<ChangeTracker> tracker);
  absl::Status MarkSince(const std::string& name);
  absl::Status FinishRevert(int snapshot, uint64_t size);
  absl::Status ResumeRevert();
  absl::Status RevertUnused(const std::string& id);

  // For what callers learn. Nothing is changed by it: it may name another volume meanwhile.
  const std::string path_;
  const OpenOptions options_;
  const ProcessMark process_;
  std::unique_ptr<DirectoryClaim> claim_;  // until Close()
  std::unique_ptr<const Directory> directory_;
  VolumeManifest manifest_;  // changes under admin_, except for the constant name and granularity
  DataFile data_;
  std::atomic<bool> open_{false};
  // No user may attach. Together with !open_: `data` may be a mixture, now or until Open().
  std::atomic<bool> reverting_{false};

  mutable WriteGate gate_;
  // Change while the gate is held.
  std::unique_ptr<ChangeTracker> tracker_;
  std::atomic<uint64_t> capacity_{0};
  SnapshotFiles files_{gate_};

  std::atomic<bool> written_{false};  // since the last checkpoint

  std::mutex close_;
  mutable std::mutex admin_;
  bool cannot_clone_ = false;  // under admin_
  // Not OK if `data` is not as it was when the volume was closed. Under admin_, until the next
  // snapshot.
  absl::Status replaced_;
  VolumeHistory history_;  // changes under admin_

  std::mutex users_mutex_;
  uint64_t users_ = 0;  // see Attach()

  VolumeWorker worker_;  // the last member: it uses the others
};

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_VOLUME_CORE_H_

// The state of an open volume.
#ifndef CBT_PROGRAMS_VOLUME_VOLUME_CORE_H_
#define CBT_PROGRAMS_VOLUME_VOLUME_CORE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "base/directory.h"
#include "base/process_mark.h"
#include "cbt/change_chain.h"
#include "cbt/change_tracker.h"
#include "programs/volume/snapshot_copy.h"
#include "programs/volume/tracked_volume.h"
#include "programs/volume/volume_directory.h"
#include "programs/volume/volume_manifest.h"
#include "programs/volume/write_gate.h"

namespace cbt::volume {

// Two groups of functions. I/O passes the gate and takes no lock. Administration (snapshots,
// resizing, background work) runs one at a time under `admin_`, and holds the gate to change what
// I/O looks at: the tracker, the capacity, the list of copies.
class TrackedVolume::Core {
 public:
  Core(const std::string& path, const OpenOptions& options) : path_(path), options_(options) {}
  ~Core();

  // Recovers, and starts background work.
  absl::Status Open();
  absl::Status Close();

  // I/O: volume_io.cc.
  absl::Status Read(uint64_t offset, std::span<uint8_t> out) const;
  absl::Status Write(uint64_t offset, std::span<const uint8_t> bytes, Durability durability);
  absl::Status Zero(Extent extent, bool may_trim, Durability durability, ZeroCost cost);
  absl::Status Trim(Extent extent, Durability durability);
  absl::Status Flush();
  absl::StatusOr<std::vector<VolumeExtent>> Extents(Extent extent, size_t most) const;

  // Administration: volume_snapshots.cc and volume_resize.cc.
  absl::StatusOr<SnapshotInfo> TakeSnapshot(const std::string& id);
  absl::Status DeleteSnapshot(const std::string& id, const std::optional<MarkLimits>& marks);
  absl::Status Resize(uint64_t capacity);
  absl::Status Revert(const std::string& id);  // volume_revert.cc
  absl::Status Attach();
  void Detach() noexcept;

  std::vector<SnapshotInfo> snapshots() const;
  std::vector<SnapshotMark> marks() const;
  absl::StatusOr<SnapshotInfo> FindSnapshot(std::string_view id) const;
  absl::StatusOr<std::string> SnapshotPath(std::string_view id) const;
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(std::string_view base,
                                                      std::string_view target) const;
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Allocated(std::string_view id) const;
  VolumeStatus status() const;
  bool WaitForCopies(double seconds) const;

  uint64_t capacity() const noexcept { return capacity_.load(std::memory_order_acquire); }
  uint64_t granularity() const noexcept { return manifest_.granularity; }
  const std::string& name() const noexcept { return manifest_.name; }

 private:
  using Copies = std::vector<std::shared_ptr<SnapshotCopy>>;

  // OK while the volume is open in this process.
  absl::Status CheckUsable() const;
  static absl::Status Reverting();
  absl::Status CheckInside(Extent extent) const;
  // Runs `change`, which returns an error number, between the marks of the tracker.
  template <typename Change>
  absl::Status Changing(Extent extent, Change change, ZeroCost cost = ZeroCost::kAny);
  absl::Status Sync();
  absl::Status CheckNotLost() const;

  absl::Status OpenParts();
  absl::Status CompareWithClosed();
  absl::Status RemoveOldTrackers() const;
  absl::StatusOr<std::unique_ptr<ChangeTracker>> MakeNextTracker(const VolumeManifest& next);
  absl::Status SwitchTracker(const VolumeManifest& next, std::unique_ptr<ChangeTracker> tracker);
  absl::Status ResumeCopies();
  absl::Status MarkSince(const std::string& name);
  absl::Status FinishRevert(int snapshot, uint64_t size);
  absl::StatusOr<OwnedDescriptor> OpenSnapshot(const std::string& name, uint64_t size) const;
  absl::Status ResumeRevert();
  absl::Status RevertUnused(const std::string& id);
  // Removes files of snapshots whose id a newer one has.
  void RemoveSuperseded();
  // Removes the entries from the chain that are no snapshot and no mark, apart from the newest.
  absl::Status RemoveHidden();
  // Brings the tracker back to one epoch: the snapshot that it was opened for is in the chain
  // afterwards, or was cancelled if it has no file.
  absl::Status FinishEpoch();
  absl::StatusOr<bool> HasFile(const std::string& name) const;
  absl::StatusOr<SnapshotInfo> InfoOf(const std::string& name) const;
  TrackerOptions OptionsOfTracker(const VolumeManifest& manifest, const std::string& base) const;

  absl::StatusOr<bool> Clone(const std::string& name);
  absl::Status StartCopy(const std::string& name);
  void SetCopies(Copies copies);
  void ContinueCopies();
  absl::Status DropCopy(const std::shared_ptr<SnapshotCopy>& copy);
  absl::Status DropFiles(std::string name);
  absl::Status LoadMarks();
  bool WriteMark(const std::string& name);
  void AddMark(const std::string& name);
  void LimitMarks(const MarkLimits& limits);
  template <typename IsDropped>
  void DropMarks(IsDropped is_dropped);
  void FinishCopy(const std::shared_ptr<SnapshotCopy>& copy);
  absl::Status Publish(const std::shared_ptr<SnapshotCopy>& copy);
  const SnapshotRecord* FindRecord(std::string_view id) const noexcept;

  void Work();
  // A write failed with `status` before it was issued, and so will every other until Repair().
  void AskForRepair(const absl::Status& status);
  absl::Status Repair();
  void NoteError(const absl::Status& status);

  // For what callers learn. Nothing is changed by it: it may name another volume meanwhile.
  const std::string path_;
  const OpenOptions options_;
  const ProcessMark process_;
  std::unique_ptr<DirectoryClaim> claim_;  // until Close()
  std::unique_ptr<const Directory> directory_;
  std::unique_ptr<const Directory> snapshot_files_;
  std::unique_ptr<const Directory> copying_files_;
  std::unique_ptr<const Directory> mark_files_;
  VolumeManifest manifest_;  // changes under admin_, except for the constant name and granularity
  OwnedDescriptor data_;
  std::atomic<bool> open_{false};
  // No user may attach. Together with !open_: `data` may be a mixture, now or until Open().
  std::atomic<bool> reverting_{false};

  mutable WriteGate gate_;
  // Change while the gate is held.
  std::unique_ptr<ChangeTracker> tracker_;
  std::atomic<uint64_t> capacity_{0};
  Copies copies_;

  // The error number of the first failed sync: what had been written before may be lost, and the
  // kernel reports that only once.
  std::atomic<int> lost_{0};
  std::atomic<bool> written_{false};  // since the last checkpoint

  std::mutex close_;
  mutable std::mutex admin_;
  bool cannot_clone_ = false;  // under admin_
  // Not OK if `data` is not as it was when the volume was closed. Under admin_, until the next
  // snapshot.
  absl::Status replaced_;

  mutable std::shared_mutex chain_mutex_;
  std::unique_ptr<ChangeChain> chain_;
  // Oldest first, without those that have no file.
  std::vector<SnapshotRecord> records_;
  std::vector<MarkRecord> marks_;  // oldest first

  mutable std::mutex work_mutex_;
  mutable std::condition_variable work_changed_;
  bool stopping_ = false;
  Copies to_copy_;  // copies_, without those that have failed
  std::string last_error_;
  uint64_t users_ = 0;       // see Attach()
  bool repair_ = false;      // asked for
  std::string write_error_;  // why writes fail, until they are repaired
  std::thread worker_;

  std::atomic<uint64_t> longest_hold_ns_{0};
  std::atomic<bool> clones_{false};
};

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_VOLUME_CORE_H_

// What the Controller service does, without gRPC: volumes and snapshots in a directory.
#ifndef CBT_PROGRAMS_DRIVER_STATE_STORE_H_
#define CBT_PROGRAMS_DRIVER_STATE_STORE_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/units.h"
#include "programs/driver/state/catalog.h"
#include "programs/driver/state/clone_attempts.h"
#include "programs/driver/state/key_locks.h"
#include "programs/driver/state/volume_access.h"

namespace cbt::driver {

// For a backup every eight hours, whose base is deleted, to find it for a month.
inline constexpr volume::MarkLimits kDefaultMarks = {
    .count = 100, .age = std::chrono::hours(24 * 45), .bytes = 256 * kMiB};

struct StoreOptions {
  std::string state_directory;
  // The sum of the capacities of all volumes is at most this, bytes; 0: no limit. Volumes are
  // sparse, so it may exceed the disk.
  uint64_t capacity = 0;
  // How many moments of deleted snapshots each volume keeps as bases of deltas.
  volume::MarkLimits marks = kDefaultMarks;
  // Receives what went wrong with a volume that no caller asked about.
  std::function<void(const std::string& id, const absl::Status& why)> report =
      [](const std::string&, const absl::Status&) {};
  // How long a call waits while a volume is copied for a clone or a group; the client calls again.
  std::chrono::milliseconds copy_wait = std::chrono::seconds(20);
  // A copy that no call has waited for in this time is given up. Longer than the pauses of clients:
  // external-provisioner's grow to five minutes.
  std::chrono::milliseconds clone_patience = std::chrono::minutes(10);
};

// The capacity that a client asks for, bytes; 0: no bound.
struct CapacityRange {
  uint64_t required = 0;
  uint64_t limit = 0;
};

struct VolumeRequest {
  std::string name;
  CapacityRange range = {};
  // Only to be read: of a snapshot, without a copy. The snapshot may be deleted; its data goes with
  // its last view.
  bool view = false;
  ContentSource source = {};
  // The unit in which changes are tracked, bytes; see volume::CreateOptions.
  uint64_t granularity = 4 * kKiB;
};

// Snapshots of several volumes, of one moment.
struct GroupSnapshot {
  std::string id;
  std::vector<Snapshot> members;

  bool ready() const noexcept {
    return std::all_of(members.begin(), members.end(),
                       [](const Snapshot& one) { return one.ready(); });
  }
};

// Thread safe. Calls that meet another one for the same volume or name fail with ABORTED, to be
// repeated. Every call can be repeated after any error, and after the driver was killed.
class Store {
 public:
  static constexpr size_t kMaxNameBytes = 128;
  static constexpr uint64_t kDefaultCapacity = kGiB;
  // Capacities are multiples of this, bytes: what every device and file system can have.
  static constexpr uint64_t kCapacityUnit = 4 * kKiB;
  // As many regions as a tracker can have, see volume::CreateOptions.
  static constexpr uint64_t kLargestVolume = kPiB;
  static constexpr size_t kMaxGroup = 64;  // volumes of a group snapshot
  static constexpr unsigned kHoldSeconds = 30;

  // Opens the directory and removes what a killed driver had begun. Errors: as Catalog::Open().
  // Cost: O(volumes + snapshots).
  static absl::StatusOr<std::unique_ptr<Store>> Open(const StoreOptions& options);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  const Catalog& catalog() const noexcept { return *catalog_; }

  // The volume of this name, made if it does not exist.
  // A clone holds what its source held at one moment after the first call of an uninterrupted
  // series, see CloneAttempts.
  // A view has the snapshot's size: OUT_OF_RANGE for a larger one.
  // Errors: INVALID_ARGUMENT for the name or the granularity, ALREADY_EXISTS for a volume of this
  //         name with another capacity, granularity or source, OUT_OF_RANGE for a capacity that
  //         can't be, or is less than the source's, NOT_FOUND without the source, DATA_LOSS if it
  //         is a snapshot that was lost, UNAVAILABLE while the source is being copied,
  //         RESOURCE_EXHAUSTED.
  //         CANCELLED if `is_gone`, which says whether the client still waits, says that it does
  //         not when a clone has been made: the next call of the series gets it.
  absl::StatusOr<Volume> CreateVolume(
      const VolumeRequest& request, const CloneAttempts::IsGone& is_gone = [] { return false; });
  // OK if it does not exist. Its snapshots stay.
  // Errors: FAILED_PRECONDITION while it is attached, DATA_LOSS if it is left alone.
  absl::Status DeleteVolume(const std::string& id);
  // Returns the capacity, at least what was required.
  // Errors: NOT_FOUND, FAILED_PRECONDITION for a view, and while the volume is attached by the
  // kernel's NBD
  //         client, OUT_OF_RANGE, RESOURCE_EXHAUSTED.
  absl::StatusOr<uint64_t> ExpandVolume(const std::string& id, const CapacityRange& range);

  // The snapshot of this name, taken if it was never taken. Its moment is on disk before the first
  // OK; if it is lost afterwards, the call fails from then on.
  // Errors: INVALID_ARGUMENT for the name, NOT_FOUND without the volume, ALREADY_EXISTS for a
  //         snapshot of this name of another volume, DATA_LOSS if it was lost; those of
  //         TrackedVolume::TakeSnapshot().
  absl::StatusOr<Snapshot> CreateSnapshot(const std::string& volume_id, const std::string& name);
  // OK if it does not exist. Its moment stays in its volume, within StoreOptions::marks. Errors:
  // DATA_LOSS if its volume is left alone, INVALID_ARGUMENT for a member of a group snapshot.
  absl::Status DeleteSnapshot(const std::string& id);
  // The snapshot as it is now, also whether it is ready.
  // Errors: NOT_FOUND, DATA_LOSS if it was lost, ABORTED while it is being deleted.
  absl::StatusOr<Snapshot> GetSnapshot(const std::string& id);
  // Asks the volume again whether a snapshot that is not ready is now. Where that can't be known
  // it stays as it was. Errors: as GetSnapshot().
  absl::Status Refresh(Snapshot& snapshot);

  // The group snapshot of this name, taken if it was never taken: a snapshot of each volume, all of
  // one moment. Writes to a volume wait until its own is taken, at most for kHoldSeconds. All or
  // nothing: if one can't be taken or completed, or the driver is killed, none is left. All members
  // are ready.
  // Errors: as CreateSnapshot(); UNAVAILABLE while they are copied, and where one could not be
  //         completed: call again; DATA_LOSS if one was lost after the first OK; INVALID_ARGUMENT
  //         for no volume, one that is named twice, or more than kMaxGroup; ALREADY_EXISTS for a
  //         group snapshot of this name of other volumes; FAILED_PRECONDITION for a view, and for a
  //         volume that an earlier version serves.
  absl::StatusOr<GroupSnapshot> CreateGroup(const std::string& name,
                                            std::vector<std::string> volume_ids);
  // `snapshot_ids`: what the client takes for its members; none: it does not say.
  // Errors: NOT_FOUND, INVALID_ARGUMENT if its members are others; as GetSnapshot(), so DATA_LOSS if
  //         one of them is lost.
  absl::StatusOr<GroupSnapshot> GetGroup(const std::string& id,
                                         std::vector<std::string> snapshot_ids);
  // With its members. OK if it does not exist. Errors: as DeleteSnapshot(); INVALID_ARGUMENT if its
  // members are others.
  absl::Status DeleteGroup(const std::string& id, std::vector<std::string> snapshot_ids);

  // Bytes that volumes can still get.
  absl::StatusOr<uint64_t> AvailableCapacity() const;

  // For the Node service.
  absl::StatusOr<KeyLocks::Held> LockVolume(const std::string& id) {
    return locks_.TryAlone("volume " + id);
  }
  absl::Status SetNode(const std::string& id, const std::optional<NodeRecord>& node) {
    return catalog_->SetNode(id, node);
  }
  // The caller holds the volume's lock.
  absl::Status SetContent(const std::string& id, Content content,
                          const std::optional<volume::DataStamp>& left = std::nullopt);
  // The volume's data as it is now, see volume::SettleStamp(). The caller holds the volume's lock.
  absl::StatusOr<volume::DataStamp> StampData(const std::string& id) const;
  absl::Status ReleaseVolume(const std::string& id) { return access_.Release(id); }
  // Called before a snapshot of an attached volume: writes what the node's kernel holds back.
  void SetFlush(std::function<absl::Status(const Volume&)> flush) { flush_ = std::move(flush); }

 private:
  Store(const StoreOptions& options, std::unique_ptr<Catalog> catalog)
      : options_(options),
        catalog_(std::move(catalog)),
        access_(*catalog_),
        clones_(options.clone_patience) {}

  // NOT_FOUND, or DATA_LOSS for a volume that is left alone.
  absl::Status NoVolume(const std::string& id) const { return catalog_->Absent(id); }
  void Recover();
  void LoadSnapshots(const std::string& id);
  absl::StatusOr<uint64_t> ChooseCapacity(const CapacityRange& range, uint64_t least) const;
  // Counts `more` bytes as taken until ReturnRoom(). Errors: RESOURCE_EXHAUSTED.
  absl::Status TakeRoom(uint64_t more);
  void ReturnRoom(uint64_t bytes);
  absl::StatusOr<Volume> MakeVolume(const VolumeRequest& request, uint64_t least,
                                    const std::string& image);
  absl::StatusOr<Volume> MakeFromSnapshot(const VolumeRequest& request);
  absl::StatusOr<Volume> MakeView(const VolumeRequest& request, uint64_t size,
                                  const std::string& image);
  absl::StatusOr<Volume> MakeClone(const VolumeRequest& request,
                                   const CloneAttempts::IsGone& is_gone);
  absl::StatusOr<Volume> CloneView(const VolumeRequest& request, const Volume& view);
  absl::StatusOr<volume::SnapshotInfo> CopyForClone(const Volume& source,
                                                    const std::string& snapshot);
  absl::Status CheckGranularity(const Volume& volume, uint64_t granularity) const;
  absl::Status ExplainFull(const absl::Status& status, uint64_t capacity) const;
  absl::Status RemoveDirectory(const std::string& id);
  absl::Status RemoveVolume(const std::string& id);
  void RemoveIfUnused(const std::string& volume_id);

  absl::Status TakeReserved(const std::string& volume_id, const std::string& id);
  absl::Status RemoveSnapshot(const Snapshot& snapshot,
                              const std::optional<volume::MarkLimits>& marks);
  absl::Status SettleReserved(const Snapshot& snapshot);
  bool IsOfUntakenGroup(const Snapshot& snapshot) const;
  absl::Status CheckVolumesOf(const Group& group) const;
  absl::Status CheckMembers(const Group& group, std::vector<std::string> snapshot_ids) const;
  absl::StatusOr<GroupSnapshot> Show(const Group& group);
  absl::StatusOr<GroupSnapshot> WaitUntilReady(const Group& group);
  absl::StatusOr<GroupSnapshot> Answer(Group group);
  absl::Status TakeGroup(const std::string& id, GroupRecord& record);
  absl::Status RecordCuts(const Group& group);
  absl::Status RemoveGroup(const std::string& id);
  void SettleGroups();
  absl::Status ReleaseName(const Snapshot& snapshot);

  // What needs no caller.
  void KeepTidy();
  void Tidy();
  void RemoveStrays(const std::string& volume_id);
  absl::Status RemoveUnclaimed(const std::string& id);
  void DiscardRemoved(const std::string& volume_id);
  void AddRemoved(const std::string& volume_id);
  bool AllSettled(const std::string& volume_id);

  const StoreOptions options_;
  const std::unique_ptr<Catalog> catalog_;
  VolumeAccess access_;
  CloneAttempts clones_;
  KeyLocks locks_;
  mutable std::mutex room_mutex_;
  uint64_t taken_ = 0;  // bytes, by volumes that are being made or expanded
  std::function<absl::Status(const Volume&)> flush_;

  std::mutex tidy_mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::set<std::string> removed_;  // volumes whose data has not been discarded
  std::thread tidy_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_STATE_STORE_H_

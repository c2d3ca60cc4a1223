// The volumes and snapshots of a driver, in memory and on disk.
//
//   STATE/volumes/ID/        a volume
//     RECORD                 what it is, see record.h
//     MAKING, REMOVED        instead of RECORD: there is no volume yet, or no more; MAKING beside
//                            RECORD: a clone that no client has got yet
//     NODE                   where it is attached and mounted, while it is
//     names/SNAPSHOT         a snapshot's name and moment, see record.h
//     volume/                the TrackedVolume
//     ID.view                instead of it: the data of a snapshot, which is read only
//     control.sock, nbd.sock sockets of the process that serves it, while it is attached
//   STATE/groups/ID        a group snapshot, see record.h; ID.gone: one that is being removed
//
// Every change is a file that is written aside and renamed, or removed, and on disk before the
// function returns: a driver that is killed finds the state before or after the change. Ids are
// random numbers, never reused, and looked up before they become part of a path.
#ifndef CBT_PROGRAMS_DRIVER_STATE_CATALOG_H_
#define CBT_PROGRAMS_DRIVER_STATE_CATALOG_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/directory.h"
#include "programs/driver/state/record.h"
#include "programs/driver/state/volume_paths.h"

namespace cbt::driver {

struct Volume {
  std::string id;
  VolumeRecord record;
  std::optional<NodeRecord> node = {};  // while it is attached, or was when a driver was killed
  size_t snapshots = 0;
  bool claimed = true;  // false: a clone that no client has got yet
};

enum class SnapshotState : uint8_t {
  kReserved,  // no one knows of it: it may be taken, now or anew
  kTaken,     // its moment is fixed, its data may still be being copied
  kReady,
  kLost,  // it was taken and is gone; never comes back
};

struct Snapshot {
  std::string id;
  std::string volume_id;
  SnapshotRecord record;  // has a cut in every state but kReserved
  SnapshotState state = SnapshotState::kReserved;

  bool ready() const noexcept { return state == SnapshotState::kReady; }
};

struct Group {
  std::string id;
  GroupRecord record;
  bool gone = false;  // it is being removed, and its members are

  // Clients may know of it.
  bool shown() const noexcept { return record.taken && !gone; }
};

// A part of a list that is sorted by id.
template <typename T>
struct Page {
  std::vector<T> entries;
  bool more = false;  // there are others after the last one
};

// Thread safe. Const functions return copies.
class Catalog {
 public:
  // Opens `state_directory` (created if missing, but not its parents) for this process alone, and
  // reads all records. A volume whose record is damaged, or missing without a mark that says why,
  // is reported to `damaged` and left alone.
  // Errors: UNAVAILABLE if another driver has the directory, INVALID_ARGUMENT if its path is too
  //         long for the sockets in it; file errors.
  static absl::StatusOr<std::unique_ptr<Catalog>> Open(
      const std::string& state_directory,
      const std::function<void(const std::string& id, const absl::Status& why)>& damaged);

  // Paths of volumes' parts.
  const VolumePaths& paths() const noexcept { return paths_; }
  std::string DirectoryOf(std::string_view id) const { return paths_.Directory(id); }
  std::string VolumeDirectory(std::string_view id) const { return paths_.Volume(id); }
  std::string ControlSocket(std::string_view id) const { return paths_.ControlSocket(id); }

  // Why there is no volume or snapshot of this id, or no volume of this name: NOT_FOUND, or
  // DATA_LOSS for one that is left alone.
  absl::Status Absent(std::string_view id) const;
  absl::Status AbsentByName(const std::string& name) const;

  std::optional<Volume> FindVolume(std::string_view id) const;
  // Not of removed ones.
  std::optional<Volume> FindVolumeByName(const std::string& name) const;
  std::optional<Snapshot> FindSnapshot(std::string_view id) const;
  std::optional<Snapshot> FindSnapshotByName(const std::string& name) const;

  // At most `most` (0: all) entries with an id after `after`, sorted by id. ListVolumes() leaves
  // out removed and unclaimed ones, ListSnapshots() those that are only reserved or lost;
  // `volume_id` empty: of all volumes.
  Page<Volume> ListVolumes(std::string_view after, size_t most) const;
  Page<Snapshot> ListSnapshots(std::string_view after, size_t most,
                               std::string_view volume_id) const;
  // Removed and unclaimed ones too.
  std::vector<Volume> AllVolumes() const;
  // In every state.
  std::vector<Snapshot> SnapshotsOf(std::string_view volume_id) const;
  // The sum of the capacities of all volumes but views, bytes.
  uint64_t provisioned() const;

  // Makes a directory for a new volume, and returns its id. Until AddVolume() it holds no volume,
  // and Leftovers() of the next driver returns it.
  absl::StatusOr<std::string> NewVolume();
  absl::Status AddVolume(const std::string& id, const VolumeRecord& record, bool claimed);
  // A client gets the volume.
  absl::Status ClaimVolume(const std::string& id);
  absl::Status ChangeVolume(const std::string& id, const VolumeRecord& record);
  // From here on there is no such volume; its directory remains, for the caller to remove.
  absl::Status DropVolume(const std::string& id);
  // Directories of no volume: what a killed driver had begun to make or to remove, as their marks
  // say.
  absl::StatusOr<std::vector<std::string>> Leftovers() const;
  // Nothing: detached.
  absl::Status SetNode(const std::string& id, const std::optional<NodeRecord>& node);

  // Reserves the name and returns an id for the snapshot. `group`: see SnapshotRecord.
  absl::StatusOr<std::string> ReserveSnapshot(const std::string& volume_id, const std::string& name,
                                              const std::string& group = "");
  // The reserved snapshot has been taken: from here on it is this one or lost.
  absl::Status RecordCut(const std::string& id, const SnapshotCut& cut);
  // In memory only: the volume itself knows how far it is. Not for reserved ones.
  void SetSnapshotState(const std::string& id, SnapshotState state);
  absl::Status DropSnapshot(const std::string& id);

  std::optional<Group> FindGroup(std::string_view id) const;
  std::optional<Group> FindGroupByName(const std::string& name) const;
  std::vector<Group> AllGroups() const;
  // An id for AddGroup(). Lock it first: others see the group as soon as it is added.
  static absl::StatusOr<std::string> NewGroupId();
  absl::Status AddGroup(const std::string& id, const GroupRecord& record);
  // Not its name.
  absl::Status ChangeGroup(const std::string& id, const GroupRecord& record);
  // From here on it can only be dropped. Needs no room on disk.
  absl::Status GiveUpGroup(const std::string& id);
  // Requires: GiveUpGroup(), and its members are gone.
  absl::Status DropGroup(const std::string& id);

 private:
  Catalog(std::unique_ptr<DirectoryClaim> claim, std::string state_directory)
      : claim_(std::move(claim)),
        paths_(state_directory),
        groups_directory_(state_directory + "/groups"),
        volumes_directory_(std::move(state_directory) + "/volumes") {}

  absl::Status Load(const std::string& id);
  absl::StatusOr<std::vector<Snapshot>> ReadSnapshots(const std::string& id) const;
  std::string GroupFile(const std::string& id) const { return groups_directory_ + "/" + id; }
  absl::Status LoadGroups(
      const std::function<void(const std::string& id, const absl::Status& why)>& damaged);
  void LeaveAlone(const std::string& id, const absl::Status& why);
  absl::Status Write(const std::string& path, const std::vector<uint8_t>& bytes) const;
  std::string NameFile(const std::string& volume_id, const std::string& id) const;
  void Index(Snapshot snapshot);

  const std::unique_ptr<DirectoryClaim> claim_;
  const VolumePaths paths_;
  const std::string groups_directory_;
  const std::string volumes_directory_;
  // Of volumes that are left alone, and why; constant after Open().
  std::map<std::string, std::string, std::less<>> left_alone_;        // volumes and snapshots
  std::map<std::string, std::string, std::less<>> names_left_alone_;  // as far as they are known
  std::mutex cuts_mutex_;  // held while a cut is recorded
  mutable std::mutex mutex_;
  // Lists find pointers side by side, see CopyAll().
  absl::btree_map<std::string, std::unique_ptr<Volume>, std::less<>> volumes_;
  std::map<std::string, std::string, std::less<>> volume_names_;  // to ids; not of removed ones
  absl::btree_map<std::string, std::unique_ptr<Snapshot>, std::less<>> snapshots_;
  std::map<std::string, std::string, std::less<>> snapshot_names_;          // to ids
  std::map<std::string, std::set<std::string>, std::less<>> snapshots_of_;  // by volume
  std::map<std::string, Group, std::less<>> groups_;
  std::map<std::string, std::string, std::less<>> group_names_;  // to ids
  uint64_t provisioned_ = 0;
};

// `prefix` and 96 random bits: never the same twice. Errors: UNAVAILABLE.
absl::StatusOr<std::string> RandomId(std::string_view prefix);

// True for a text that can be the id of a volume or of a snapshot.
bool IsVolumeId(std::string_view id);
bool IsSnapshotId(std::string_view id);
bool IsGroupId(std::string_view id);

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_STATE_CATALOG_H_

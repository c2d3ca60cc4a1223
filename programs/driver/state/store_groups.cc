// Group snapshots: snapshots of several volumes, of one moment.
//
// The group is recorded, a snapshot of each volume is reserved as its member, writes to all volumes
// are held, each volume is cut, and the group is recorded as taken, with the cuts. Only then are the
// cuts recorded with the members, and clients learn of any. A group that is not recorded as taken
// can't be completed, since its moment is over: it is removed, now or by the next driver. So is one
// whose data can't be completed before it was answered.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "programs/driver/state/errors.h"
#include "programs/driver/state/store.h"

namespace cbt::driver {
namespace {

// No client can choose it: see CheckName().
std::string MemberName(const std::string& group, const std::string& volume_id) {
  return absl::StrCat("\n", group, "/", volume_id);
}

// Sorted; none twice.
absl::Status CheckVolumes(std::vector<std::string>& volume_ids) {
  std::sort(volume_ids.begin(), volume_ids.end());
  if (volume_ids.empty()) {
    return absl::InvalidArgumentError("source_volume_ids: are missing");
  }
  if (volume_ids.size() > Store::kMaxGroup) {
    return absl::InvalidArgumentError(
        absl::StrCat("source_volume_ids: ", volume_ids.size(), ", at most ", Store::kMaxGroup));
  }
  if (std::adjacent_find(volume_ids.begin(), volume_ids.end()) != volume_ids.end()) {
    return absl::InvalidArgumentError("source_volume_ids: a volume is named twice");
  }
  return absl::OkStatus();
}

bool IsOf(const GroupRecord& record, const std::vector<std::string>& volume_ids) {
  return std::equal(
      record.members.begin(), record.members.end(), volume_ids.begin(), volume_ids.end(),
      [](const GroupMember& member, const std::string& id) { return member.volume_id == id; });
}

absl::Status NotTaken(const std::string& volume_id, const absl::Status& why) {
  return absl::Status(why.code(), absl::StrCat("no snapshot of volume ", volume_id,
                                               ", and so none of its group: ", why.message()));
}

}  // namespace

// Or of one whose record is damaged: no client knows of a member that is only reserved then either.
bool Store::IsOfUntakenGroup(const Snapshot& snapshot) const {
  if (snapshot.record.group.empty()) return false;
  const std::optional<Group> group = catalog_->FindGroup(snapshot.record.group);
  return !group.has_value() || !group->shown();
}

// DATA_LOSS if a member's volume is left alone.
absl::Status Store::CheckVolumesOf(const Group& group) const {
  for (const GroupMember& member : group.record.members) {
    if (catalog_->FindVolume(member.volume_id).has_value()) continue;
    const absl::Status absent = catalog_->Absent(member.volume_id);
    if (!absl::IsNotFound(absent)) return absent;
  }
  return absl::OkStatus();
}

absl::Status Store::CheckMembers(const Group& group, std::vector<std::string> snapshot_ids) const {
  if (snapshot_ids.empty()) return absl::OkStatus();
  std::vector<std::string> ours;
  for (const GroupMember& member : group.record.members) ours.push_back(member.snapshot_id);
  std::sort(ours.begin(), ours.end());
  std::sort(snapshot_ids.begin(), snapshot_ids.end());
  if (ours == snapshot_ids) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("snapshot_ids: are not the members of group snapshot ", group.id));
}

// Requires: the group is taken.
absl::StatusOr<GroupSnapshot> Store::Show(const Group& group) {
  GroupSnapshot shown = {.id = group.id, .members = {}};
  for (const GroupMember& member : group.record.members) {
    absl::StatusOr<Snapshot> snapshot = GetSnapshot(member.snapshot_id);
    if (absl::IsDataLoss(snapshot.status())) {
      return absl::DataLossError(absl::StrCat(
          "group snapshot ", group.id, " is lost with its member ", member.snapshot_id,
          ", whose data could not be completed, or was removed; delete the group snapshot and take "
          "a new one"));
    }
    if (!snapshot.ok()) return snapshot.status();
    shown.members.push_back(*std::move(snapshot));
  }
  return shown;
}

// Requires: the group is taken. snapshot-controller writes into the members' objects, again and
// again, whether they were ready when the group was answered first.
absl::StatusOr<GroupSnapshot> Store::WaitUntilReady(const Group& group) {
  constexpr std::chrono::milliseconds kPoll{20};
  const auto latest = std::chrono::steady_clock::now() + options_.copy_wait;
  for (;;) {
    absl::StatusOr<GroupSnapshot> shown = Show(group);
    if (!shown.ok() || shown->ready()) return shown;
    if (std::chrono::steady_clock::now() >= latest) {
      return absl::UnavailableError(absl::StrCat(
          "group snapshot ", group.id, " is taken, and its data is being copied; call again"));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

// Requires: the group alone, and that it is taken. A client learns of the group by the first OK: one
// that is lost before could never be deleted, and is removed.
absl::StatusOr<GroupSnapshot> Store::Answer(Group group) {
  absl::StatusOr<GroupSnapshot> ready = WaitUntilReady(group);
  if (group.record.answered) return ready;
  if (ready.ok()) {
    group.record.answered = true;
    absl::Status kept = catalog_->ChangeGroup(group.id, group.record);
    return kept.ok() ? std::move(ready) : absl::StatusOr<GroupSnapshot>(std::move(kept));
  }
  // A volume that is left alone may have its member.
  const bool lost = absl::IsDataLoss(ready.status()) || absl::IsNotFound(ready.status());
  if (!lost || !CheckVolumesOf(group).ok()) return ready;
  if (absl::Status removed = RemoveGroup(group.id); !removed.ok()) return removed;
  return absl::UnavailableError(
      absl::StrCat("group snapshot ", group.id,
                   " was removed, as the data of a member could not be completed, for want of room "
                   "perhaps; call again"));
}

// What a taken group's members lack after a kill.
absl::Status Store::RecordCuts(const Group& group) {
  for (const GroupMember& member : group.record.members) {
    const std::optional<Snapshot> snapshot = catalog_->FindSnapshot(member.snapshot_id);
    if (!snapshot.has_value() || snapshot->record.cut.has_value()) continue;
    absl::Status recorded = catalog_->RecordCut(member.snapshot_id, member.cut);
    if (!recorded.ok()) return recorded;
  }
  return absl::OkStatus();
}

// Requires: the group alone. Goes on from wherever an earlier call was.
absl::Status Store::RemoveGroup(const std::string& id) {
  const std::optional<Group> group = catalog_->FindGroup(id);
  if (!group.has_value()) return absl::OkStatus();
  // A client's group goes as a whole.
  const absl::Status whole = CheckVolumesOf(*group);
  if (group->shown() && !whole.ok()) return whole;
  if (!group->gone) {
    if (absl::Status given_up = catalog_->GiveUpGroup(id); !given_up.ok()) return given_up;
  }
  // A member that clients knew of may have been a base.
  const std::optional<volume::MarkLimits> marks =
      group->record.taken ? std::optional(options_.marks) : std::nullopt;
  for (const GroupMember& member : group->record.members) {
    for (const Snapshot& snapshot : catalog_->SnapshotsOf(member.volume_id)) {
      if (snapshot.record.group != id) continue;
      const absl::StatusOr<KeyLocks::Held> held = locks_.TryShared("volume " + member.volume_id);
      if (!held.ok()) return held.status();
      const absl::StatusOr<KeyLocks::Held> alone = locks_.TryAlone("snapshot " + snapshot.id);
      if (!alone.ok()) return alone.status();
      if (absl::Status removed = RemoveSnapshot(snapshot, marks); !removed.ok()) return removed;
    }
  }
  if (!whole.ok()) return whole;
  if (absl::Status dropped = catalog_->DropGroup(id); !dropped.ok()) return dropped;
  for (const GroupMember& member : group->record.members) RemoveIfUnused(member.volume_id);
  return absl::OkStatus();
}

void Store::SettleGroups() {
  for (const Group& group : catalog_->AllGroups()) {
    const absl::StatusOr<KeyLocks::Held> held = locks_.TryAlone("group " + group.id);
    if (!held.ok()) continue;
    const std::optional<Group> current = catalog_->FindGroup(group.id);
    if (!current.has_value()) continue;
    const absl::Status settled = current->shown() ? RecordCuts(*current) : RemoveGroup(group.id);
    // Damage was reported when it was found.
    if (!settled.ok() && !absl::IsDataLoss(settled)) options_.report(group.id, settled);
  }
}

// Requires: the group alone, and a share of each volume. Each volume is held from before the first
// cut until its own: so all cuts are of the moment when the last one had been held.
absl::Status Store::TakeGroup(const std::string& id, GroupRecord& record) {
  for (GroupMember& member : record.members) {
    absl::StatusOr<std::string> reserved =
        catalog_->ReserveSnapshot(member.volume_id, MemberName(id, member.volume_id), id);
    if (!reserved.ok()) return reserved.status();
    member.snapshot_id = *std::move(reserved);
  }
  // Before any is held: what the node's kernel holds back is writes.
  for (const GroupMember& member : record.members) {
    const std::optional<Volume> volume = catalog_->FindVolume(member.volume_id);
    if (!volume->node.has_value() || !flush_) continue;
    if (absl::Status flushed = flush_(*volume); !flushed.ok()) return flushed;
  }
  std::vector<VolumeHold> holds;
  for (const GroupMember& member : record.members) {
    absl::StatusOr<VolumeHold> hold = access_.Hold(member.volume_id, kHoldSeconds);
    if (!hold.ok()) return NotTaken(member.volume_id, hold.status());
    holds.push_back(*std::move(hold));
  }
  for (size_t i = 0; i < holds.size(); ++i) {
    GroupMember& member = record.members[i];
    const absl::StatusOr<volume::SnapshotInfo> info =
        access_.TakeSnapshot(std::move(holds[i]), member.snapshot_id);
    if (!info.ok()) return NotTaken(member.volume_id, info.status());
    member.cut = {.created_ns = info->created_ns, .size = info->size};
  }
  return absl::OkStatus();
}

absl::StatusOr<GroupSnapshot> Store::CreateGroup(const std::string& name,
                                                 std::vector<std::string> volume_ids) {
  if (absl::Status valid = CheckName(name); !valid.ok()) return valid;
  if (absl::Status valid = CheckVolumes(volume_ids); !valid.ok()) return valid;
  const absl::StatusOr<KeyLocks::Held> name_held = locks_.TryAlone("group snapshot name " + name);
  if (!name_held.ok()) return name_held.status();
  if (const std::optional<Group> found = catalog_->FindGroupByName(name); found.has_value()) {
    const absl::StatusOr<KeyLocks::Held> held = locks_.TryAlone("group " + found->id);
    if (!held.ok()) return held.status();
    const std::optional<Group> current = catalog_->FindGroup(found->id);
    if (current.has_value() && current->shown()) {
      if (!IsOf(current->record, volume_ids)) {
        return absl::AlreadyExistsError("a group snapshot of this name is of other volumes");
      }
      if (absl::Status recorded = RecordCuts(*current); !recorded.ok()) return recorded;
      return Answer(*current);
    }
    if (absl::Status removed = RemoveGroup(found->id); !removed.ok()) return removed;
  }
  std::vector<KeyLocks::Held> volumes_held;
  GroupRecord record = {.name = name};
  for (const std::string& volume_id : volume_ids) {
    absl::StatusOr<KeyLocks::Held> held = locks_.TryShared("volume " + volume_id);
    if (!held.ok()) return held.status();
    volumes_held.push_back(*std::move(held));
    const std::optional<Volume> volume = catalog_->FindVolume(volume_id);
    if (!volume.has_value() || volume->record.removed) return NoVolume(volume_id);
    if (volume->record.view) return OnlyRead();
    record.members.push_back({.volume_id = volume_id});
  }
  const absl::StatusOr<std::string> id = Catalog::NewGroupId();
  if (!id.ok()) return id.status();
  // Before it is there: SettleGroups() removes groups that were not taken.
  const absl::StatusOr<KeyLocks::Held> held = locks_.TryAlone("group " + *id);
  if (!held.ok()) return held.status();
  if (absl::Status added = catalog_->AddGroup(*id, record); !added.ok()) return added;
  absl::Status taken = TakeGroup(*id, record);
  if (taken.ok()) {
    record.taken = true;
    taken = catalog_->ChangeGroup(*id, record);
  }
  if (!taken.ok()) {
    // What can't be removed now is removed later, and no client learns of it before.
    if (absl::Status removed = RemoveGroup(*id); !removed.ok()) options_.report(*id, removed);
    return taken;
  }
  if (absl::Status recorded = RecordCuts({.id = *id, .record = record}); !recorded.ok()) {
    return recorded;
  }
  volumes_held.clear();
  return Answer({.id = *id, .record = record});
}

absl::StatusOr<GroupSnapshot> Store::GetGroup(const std::string& id,
                                              std::vector<std::string> snapshot_ids) {
  const std::optional<Group> group = catalog_->FindGroup(id);
  if (!group.has_value() || !group->shown()) {
    return group.has_value() ? absl::NotFoundError("there is no group snapshot " + id)
                             : catalog_->Absent(id);
  }
  if (absl::Status ours = CheckMembers(*group, std::move(snapshot_ids)); !ours.ok()) return ours;
  return Show(*group);
}

absl::Status Store::DeleteGroup(const std::string& id, std::vector<std::string> snapshot_ids) {
  const absl::StatusOr<KeyLocks::Held> held = locks_.TryAlone("group " + id);
  if (!held.ok()) return held.status();
  const std::optional<Group> group = catalog_->FindGroup(id);
  if (!group.has_value()) return OkIfNotFound(catalog_->Absent(id));
  if (group->shown()) {
    if (absl::Status ours = CheckMembers(*group, std::move(snapshot_ids)); !ours.ok()) return ours;
  }
  return RemoveGroup(id);
}

}  // namespace cbt::driver

#include "programs/driver/state/catalog.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/text.h"

namespace cbt::driver {
namespace {

constexpr std::string_view kVolumePrefix = "vol-";
constexpr std::string_view kSnapshotPrefix = "snap-";
constexpr std::string_view kGroupPrefix = "group-";
constexpr size_t kRandomBytes = 12;
constexpr uint64_t kMaxRecordBytes = 1 << 20;
constexpr char kRecord[] = "RECORD";
constexpr char kMaking[] = "MAKING";
constexpr char kRemoved[] = "REMOVED";
constexpr char kGone[] = ".gone";

bool IsId(std::string_view id, std::string_view prefix) {
  return id.size() == prefix.size() + 2 * kRandomBytes && id.starts_with(prefix) &&
         std::all_of(id.begin() + static_cast<ptrdiff_t>(prefix.size()), id.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

absl::Status RemoveFile(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return FileError(path, errno);
  return SyncDirectory(cbt::DirectoryOf(path));
}

// What reading again won't change.
bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsInvalidArgument(status) ||
         absl::IsUnimplemented(status);
}

// Whether a directory without a record may be removed. That the record is missing is not enough: it
// may have been lost, and then the data of a volume is all that is left of it.
absl::StatusOr<bool> IsLeftover(const Directory& directory) {
  for (const char* const mark : {kMaking, kRemoved}) {
    const absl::StatusOr<bool> marked = directory.Has(mark);
    if (!marked.ok() || *marked) return marked;
  }
  const absl::StatusOr<bool> has_data = directory.Has("volume");
  if (!has_data.ok()) return has_data;
  return !*has_data;
}

absl::StatusOr<std::vector<uint8_t>> ReadRecord(const Directory& directory,
                                                const std::string& file) {
  return directory.Read(file, kMaxRecordBytes);
}

// A view takes no space of its own.
uint64_t OwnBytes(const VolumeRecord& record) { return record.view ? 0 : record.capacity; }

// The entries of a page are neighbours by random ids and lie anywhere in memory: all are asked for
// before the first is waited for.
template <typename T>
std::vector<T> CopyAll(const std::vector<const T*>& found) {
  constexpr size_t kLine = 64;
  for (const T* const entry : found) {
    for (size_t at = 0; at < sizeof(T); at += kLine) {
      __builtin_prefetch(reinterpret_cast<const char*>(entry) + at);
    }
  }
  for (const T* const entry : found) {
    __builtin_prefetch(entry->id.data());
    if constexpr (std::is_same_v<T, Snapshot>) __builtin_prefetch(entry->volume_id.data());
  }
  std::vector<T> copies;
  copies.reserve(found.size());
  for (const T* const entry : found) copies.push_back(*entry);
  return copies;
}

}  // namespace

// Never reused: with 96 random bits, two of a billion ids are equal with a chance of 1 in 10^11.
absl::StatusOr<std::string> RandomId(std::string_view prefix) {
  std::array<char, kRandomBytes> bytes;
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return absl::UnavailableError("no random numbers for an id");
  }
  return absl::StrCat(AbslView(prefix),
                      absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size())));
}

bool IsVolumeId(std::string_view id) { return IsId(id, kVolumePrefix); }
bool IsSnapshotId(std::string_view id) { return IsId(id, kSnapshotPrefix); }
bool IsGroupId(std::string_view id) { return IsId(id, kGroupPrefix); }

absl::StatusOr<std::unique_ptr<Catalog>> Catalog::Open(
    const std::string& state_directory,
    const std::function<void(const std::string& id, const absl::Status& why)>& damaged) {
  constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  const size_t longest_socket = state_directory.size() + std::string_view("/volumes/").size() +
                                kVolumePrefix.size() + 2 * kRandomBytes +
                                std::string_view("/control.sock").size();
  if (state_directory.empty() || longest_socket > kLongest) {
    return absl::InvalidArgumentError(absl::StrCat(
        state_directory, ": the path of the state directory must have 1 to ",
        kLongest - (longest_socket - state_directory.size()), " bytes, for the sockets in it"));
  }
  if (absl::Status made = MakeDirectory(state_directory, /*sync=*/true); !made.ok()) return made;
  absl::StatusOr<Directory> directory = Directory::Open(state_directory);
  if (!directory.ok()) return directory.status();
  absl::StatusOr<std::unique_ptr<DirectoryClaim>> claim = DirectoryClaim::Take(*directory);
  if (!claim.ok()) return claim.status();
  std::unique_ptr<Catalog> catalog(new Catalog(*std::move(claim), state_directory));
  if (absl::Status made = MakeDirectory(catalog->volumes_directory_, /*sync=*/true); !made.ok()) {
    return made;
  }
  absl::StatusOr<Directory> volumes = Directory::Open(catalog->volumes_directory_);
  if (!volumes.ok()) return volumes.status();
  absl::StatusOr<std::vector<std::string>> names = volumes->List();
  if (!names.ok()) return names.status();
  for (const std::string& id : *names) {
    if (!IsVolumeId(id)) continue;
    const absl::Status loaded = catalog->Load(id);
    if (loaded.ok()) continue;
    // A volume that can't be read now must not be left out: a second one of its name could be made.
    if (!IsDamage(loaded)) return loaded;
    catalog->LeaveAlone(id, loaded);
    damaged(id, loaded);
  }
  if (absl::Status loaded = catalog->LoadGroups(damaged); !loaded.ok()) return loaded;
  return catalog;
}

absl::Status Catalog::LoadGroups(
    const std::function<void(const std::string& id, const absl::Status& why)>& damaged) {
  if (absl::Status made = MakeDirectory(groups_directory_, /*sync=*/true); !made.ok()) return made;
  absl::StatusOr<Directory> directory = Directory::Open(groups_directory_);
  if (!directory.ok()) return directory.status();
  const absl::StatusOr<std::vector<std::string>> files = directory->List();
  if (!files.ok()) return files.status();
  for (const std::string& file : *files) {
    // A driver was killed while it wrote it.
    if (file.ends_with(kPartialExtension)) directory->Remove(file.c_str());
    const bool gone = file.ends_with(kGone);
    const std::string id = gone ? file.substr(0, file.size() - std::strlen(kGone)) : file;
    if (!IsGroupId(id)) continue;
    const absl::StatusOr<std::vector<uint8_t>> bytes = ReadRecord(*directory, file);
    absl::StatusOr<GroupRecord> record =
        bytes.ok() ? DecodeGroup(*bytes, directory->Shown(file)) : bytes.status();
    if (record.ok()) {
      // One that failed while it was synced may be there beside the one that was taken.
      if (!gone && (record->taken || !group_names_.contains(record->name))) {
        group_names_[record->name] = id;
      }
      groups_[id] = {.id = id, .record = *std::move(record), .gone = gone};
      continue;
    }
    if (!IsDamage(record.status())) return record.status();
    left_alone_[id] = std::string(record.status().message());
    damaged(id, record.status());
  }
  return absl::OkStatus();
}

absl::Status Catalog::Load(const std::string& id) {
  absl::StatusOr<Directory> directory = Directory::Open(DirectoryOf(id));
  if (!directory.ok()) return directory.status();
  const absl::StatusOr<bool> recorded = directory->Has(kRecord);
  if (!recorded.ok()) return recorded.status();
  if (!*recorded) {
    const absl::StatusOr<bool> leftover = IsLeftover(*directory);
    if (!leftover.ok()) return leftover.status();
    if (*leftover) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(directory->Shown(kRecord),
                                            ": is missing beside a volume, which is left alone; if "
                                            "it is not needed, remove its directory"));
  }
  const absl::StatusOr<std::vector<uint8_t>> bytes = ReadRecord(*directory, kRecord);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<VolumeRecord> record = DecodeVolume(*bytes, directory->Shown(kRecord));
  if (!record.ok()) return record.status();
  Volume volume{.id = id, .record = *std::move(record)};
  const absl::StatusOr<bool> making = directory->Has(kMaking);
  if (!making.ok()) return making.status();
  if (*making && volume.record.source.kind == ContentSource::Kind::kVolume) {
    volume.claimed = false;
  } else if (*making) {
    directory->Remove(kMaking);  // a driver was killed just after it had written the record
  }
  const absl::StatusOr<bool> attached = directory->Has("NODE");
  if (!attached.ok()) return attached.status();
  if (*attached) {
    const absl::StatusOr<std::vector<uint8_t>> node = ReadRecord(*directory, "NODE");
    if (!node.ok()) return node.status();
    absl::StatusOr<NodeRecord> decoded = DecodeNode(*node, directory->Shown("NODE"));
    if (!decoded.ok()) return decoded.status();
    volume.node = *std::move(decoded);
  }
  // All or nothing: a snapshot that is not known would be deleted with its volume.
  absl::StatusOr<std::vector<Snapshot>> snapshots = ReadSnapshots(id);
  if (!snapshots.ok()) {
    if (!volume.record.removed) {
      names_left_alone_[volume.record.name] = std::string(snapshots.status().message());
    }
    return snapshots.status();
  }
  volume.snapshots = snapshots->size();
  for (Snapshot& snapshot : *snapshots) Index(std::move(snapshot));
  provisioned_ += OwnBytes(volume.record);
  if (!volume.record.removed) volume_names_[volume.record.name] = id;
  volumes_[id] = std::make_unique<Volume>(std::move(volume));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Snapshot>> Catalog::ReadSnapshots(const std::string& id) const {
  absl::StatusOr<Directory> directory = Directory::Open(DirectoryOf(id) + "/names");
  if (!directory.ok()) return directory.status();
  const absl::StatusOr<std::vector<std::string>> files = directory->List();
  if (!files.ok()) return files.status();
  std::vector<Snapshot> snapshots;
  for (const std::string& file : *files) {
    if (!IsSnapshotId(file)) continue;
    const absl::StatusOr<std::vector<uint8_t>> bytes = ReadRecord(*directory, file);
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<SnapshotRecord> record = DecodeSnapshot(*bytes, directory->Shown(file));
    if (!record.ok()) return record.status();
    const SnapshotState state =
        record->cut.has_value() ? SnapshotState::kTaken : SnapshotState::kReserved;
    snapshots.push_back(
        {.id = file, .volume_id = id, .record = *std::move(record), .state = state});
  }
  return snapshots;
}

void Catalog::LeaveAlone(const std::string& id, const absl::Status& why) {
  left_alone_[id] = std::string(why.message());
  const absl::StatusOr<Directory> directory = Directory::Open(DirectoryOf(id) + "/names");
  if (!directory.ok()) return;
  const absl::StatusOr<std::vector<std::string>> files = directory->List();
  if (!files.ok()) return;
  for (const std::string& file : *files) {
    if (IsSnapshotId(file)) left_alone_[file] = std::string(why.message());
  }
}

absl::Status Catalog::Absent(std::string_view id) const {
  const auto found = left_alone_.find(id);
  if (found != left_alone_.end()) return absl::DataLossError(found->second);
  return absl::NotFoundError(absl::StrCat("there is no ",
                                          IsSnapshotId(id) ? "snapshot "
                                          : IsGroupId(id)  ? "group snapshot "
                                                           : "volume ",
                                          AbslView(id)));
}

absl::Status Catalog::AbsentByName(const std::string& name) const {
  const auto found = names_left_alone_.find(name);
  return found == names_left_alone_.end() ? absl::NotFoundError("there is no volume of this name")
                                          : absl::DataLossError(found->second);
}

// Requires: mutex_, or no other thread.
void Catalog::Index(Snapshot snapshot) {
  // A reservation that failed while it was synced may have left a second one of the name.
  const auto [named, added] = snapshot_names_.try_emplace(snapshot.record.name, snapshot.id);
  if (!added && !snapshots_.at(named->second)->record.cut.has_value()) named->second = snapshot.id;
  snapshots_of_[snapshot.volume_id].insert(snapshot.id);
  auto kept = std::make_unique<Snapshot>(std::move(snapshot));  // first: no id without a snapshot
  snapshots_.insert_or_assign(kept->id, std::move(kept));
}

std::string Catalog::NameFile(const std::string& volume_id, const std::string& id) const {
  return DirectoryOf(volume_id) + "/names/" + id;
}

absl::Status Catalog::Write(const std::string& path, const std::vector<uint8_t>& bytes) const {
  if (absl::Status ours = claim_->Check(); !ours.ok()) return ours;
  const std::array<std::span<const uint8_t>, 1> parts = {bytes};
  return WriteFileAtomically(path, parts, /*sync=*/true);
}

std::optional<Volume> Catalog::FindVolume(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  const auto found = volumes_.find(id);
  return found == volumes_.end() ? std::nullopt : std::optional(*found->second);
}

std::optional<Volume> Catalog::FindVolumeByName(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = volume_names_.find(name);
  return found == volume_names_.end() ? std::nullopt : std::optional(*volumes_.at(found->second));
}

std::optional<Snapshot> Catalog::FindSnapshot(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  const auto found = snapshots_.find(id);
  return found == snapshots_.end() ? std::nullopt : std::optional(*found->second);
}

std::optional<Snapshot> Catalog::FindSnapshotByName(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = snapshot_names_.find(name);
  return found == snapshot_names_.end() ? std::nullopt
                                        : std::optional(*snapshots_.at(found->second));
}

Page<Volume> Catalog::ListVolumes(std::string_view after, size_t most) const {
  const std::lock_guard lock(mutex_);
  std::vector<const Volume*> found;
  bool more = false;
  for (auto at = volumes_.upper_bound(after); at != volumes_.end() && !more; ++at) {
    const Volume& volume = *at->second;
    if (volume.record.removed || !volume.claimed) continue;
    more = most > 0 && found.size() == most;
    if (!more) found.push_back(&volume);
  }
  return {CopyAll(found), more};
}

Page<Snapshot> Catalog::ListSnapshots(std::string_view after, size_t most,
                                      std::string_view volume_id) const {
  const std::lock_guard lock(mutex_);
  std::vector<const Snapshot*> found;
  bool more = false;
  const auto add = [&](const Snapshot& snapshot) {
    if (snapshot.state == SnapshotState::kReserved || snapshot.state == SnapshotState::kLost)
      return;
    more = most > 0 && found.size() == most;
    if (!more) found.push_back(&snapshot);
  };
  if (volume_id.empty()) {
    for (auto at = snapshots_.upper_bound(after); at != snapshots_.end() && !more; ++at) {
      add(*at->second);
    }
  } else if (const auto of = snapshots_of_.find(volume_id); of != snapshots_of_.end()) {
    const std::set<std::string>& ids = of->second;
    for (auto at = ids.upper_bound(std::string(after)); at != ids.end() && !more; ++at) {
      add(*snapshots_.find(*at)->second);
    }
  }
  return {CopyAll(found), more};
}

std::vector<Volume> Catalog::AllVolumes() const {
  const std::lock_guard lock(mutex_);
  std::vector<Volume> all;
  all.reserve(volumes_.size());
  for (const auto& [id, volume] : volumes_) all.push_back(*volume);
  return all;
}

std::vector<Snapshot> Catalog::SnapshotsOf(std::string_view volume_id) const {
  const std::lock_guard lock(mutex_);
  const auto found = snapshots_of_.find(volume_id);
  std::vector<Snapshot> all;
  if (found == snapshots_of_.end()) return all;
  for (const std::string& id : found->second) all.push_back(*snapshots_.at(id));
  return all;
}

uint64_t Catalog::provisioned() const {
  const std::lock_guard lock(mutex_);
  return provisioned_;
}

absl::StatusOr<std::string> Catalog::NewVolume() {
  absl::StatusOr<std::string> id = RandomId(kVolumePrefix);
  if (!id.ok()) return id;
  const std::string directory = DirectoryOf(*id);
  absl::Status made = claim_->Check();
  if (!made.ok()) return made;
  made = MakeDirectory(directory, /*sync=*/true);
  if (made.ok()) made = Write(directory + "/" + kMaking, {});
  if (made.ok()) made = MakeDirectory(directory + "/names", /*sync=*/true);
  if (made.ok()) return id;
  ::rmdir((directory + "/names").c_str());
  ::unlink((directory + "/" + kMaking).c_str());
  ::rmdir(directory.c_str());
  return made;
}

absl::Status Catalog::AddVolume(const std::string& id, const VolumeRecord& record, bool claimed) {
  const std::string path = DirectoryOf(id) + "/" + kRecord;
  absl::Status written = Write(path, EncodeVolume(record));
  if (written.ok() && claimed) written = RemoveFile(DirectoryOf(id) + "/" + kMaking);
  if (!written.ok()) {
    ::unlink(path.c_str());  // it may be there nevertheless
    return written;
  }
  const std::lock_guard lock(mutex_);
  volumes_[id] = std::make_unique<Volume>(Volume{.id = id, .record = record, .claimed = claimed});
  volume_names_[record.name] = id;
  provisioned_ += OwnBytes(record);
  return absl::OkStatus();
}

absl::Status Catalog::ClaimVolume(const std::string& id) {
  if (absl::Status ours = claim_->Check(); !ours.ok()) return ours;
  if (absl::Status gone = RemoveFile(DirectoryOf(id) + "/" + kMaking); !gone.ok()) return gone;
  const std::lock_guard lock(mutex_);
  volumes_.at(id)->claimed = true;
  return absl::OkStatus();
}

absl::Status Catalog::ChangeVolume(const std::string& id, const VolumeRecord& record) {
  if (absl::Status written = Write(DirectoryOf(id) + "/" + kRecord, EncodeVolume(record));
      !written.ok()) {
    return written;
  }
  const std::lock_guard lock(mutex_);
  VolumeRecord& kept = volumes_.at(id)->record;
  provisioned_ += OwnBytes(record) - OwnBytes(kept);
  if (record.removed && !kept.removed) volume_names_.erase(kept.name);
  kept = record;
  return absl::OkStatus();
}

absl::Status Catalog::DropVolume(const std::string& id) {
  if (absl::Status ours = claim_->Check(); !ours.ok()) return ours;
  // A full disk has room for another name of the record.
  const std::string path = DirectoryOf(id) + "/" + kRecord;
  if (::rename(path.c_str(), (DirectoryOf(id) + "/" + kRemoved).c_str()) != 0 && errno != ENOENT) {
    return FileError(path, errno);
  }
  if (absl::Status synced = SyncDirectory(DirectoryOf(id)); !synced.ok()) return synced;
  const std::lock_guard lock(mutex_);
  const auto found = volumes_.find(id);
  provisioned_ -= OwnBytes(found->second->record);
  if (!found->second->record.removed) volume_names_.erase(found->second->record.name);
  volumes_.erase(found);
  for (const std::string& snapshot : snapshots_of_[id]) {
    snapshot_names_.erase(snapshots_.at(snapshot)->record.name);
    snapshots_.erase(snapshot);
  }
  snapshots_of_.erase(id);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Catalog::Leftovers() const {
  absl::StatusOr<Directory> directory = Directory::Open(volumes_directory_);
  if (!directory.ok()) return directory.status();
  absl::StatusOr<std::vector<std::string>> names = directory->List();
  if (!names.ok()) return names.status();
  std::vector<std::string> left;
  for (const std::string& id : *names) {
    if (!IsVolumeId(id) || FindVolume(id).has_value()) continue;
    const absl::StatusOr<Directory> of_volume = Directory::Open(DirectoryOf(id));
    if (!of_volume.ok()) return of_volume.status();
    const absl::StatusOr<bool> recorded = of_volume->Has(kRecord);
    if (!recorded.ok()) return recorded.status();
    if (*recorded) continue;  // damaged
    const absl::StatusOr<bool> leftover = IsLeftover(*of_volume);
    if (!leftover.ok()) return leftover.status();
    if (*leftover) left.push_back(id);
  }
  return left;
}

absl::Status Catalog::SetNode(const std::string& id, const std::optional<NodeRecord>& node) {
  const std::string path = DirectoryOf(id) + "/NODE";
  if (absl::Status ours = claim_->Check(); !ours.ok()) return ours;
  const absl::Status done = node.has_value() ? Write(path, EncodeNode(*node)) : RemoveFile(path);
  if (!done.ok()) return done;
  const std::lock_guard lock(mutex_);
  volumes_.at(id)->node = node;
  return absl::OkStatus();
}

absl::StatusOr<std::string> Catalog::ReserveSnapshot(const std::string& volume_id,
                                                     const std::string& name,
                                                     const std::string& group) {
  absl::StatusOr<std::string> id = RandomId(kSnapshotPrefix);
  if (!id.ok()) return id;
  const SnapshotRecord record = {.name = name, .group = group};
  if (absl::Status written = Write(NameFile(volume_id, *id), EncodeSnapshot(record));
      !written.ok()) {
    ::unlink(NameFile(volume_id, *id).c_str());  // it may be there nevertheless
    return written;
  }
  const std::lock_guard lock(mutex_);
  Index({.id = *id, .volume_id = volume_id, .record = record});
  ++volumes_.at(volume_id)->snapshots;
  return id;
}

absl::Status Catalog::RecordCut(const std::string& id, const SnapshotCut& cut) {
  const std::lock_guard alone(cuts_mutex_);
  const std::optional<Snapshot> snapshot = FindSnapshot(id);
  if (!snapshot.has_value()) return absl::NotFoundError("there is no snapshot " + id);
  SnapshotRecord record = snapshot->record;
  record.cut = cut;
  if (absl::Status written = Write(NameFile(snapshot->volume_id, id), EncodeSnapshot(record));
      !written.ok()) {
    return written;
  }
  const std::lock_guard lock(mutex_);
  Snapshot& kept = *snapshots_.at(id);
  kept.record = std::move(record);
  kept.state = SnapshotState::kTaken;
  return absl::OkStatus();
}

void Catalog::SetSnapshotState(const std::string& id, SnapshotState state) {
  const std::lock_guard lock(mutex_);
  const auto found = snapshots_.find(id);
  if (found != snapshots_.end()) found->second->state = state;
}

absl::Status Catalog::DropSnapshot(const std::string& id) {
  const std::optional<Snapshot> snapshot = FindSnapshot(id);
  if (!snapshot.has_value()) return absl::OkStatus();
  if (absl::Status ours = claim_->Check(); !ours.ok()) return ours;
  if (absl::Status removed = RemoveFile(NameFile(snapshot->volume_id, id)); !removed.ok()) {
    return removed;
  }
  const std::lock_guard lock(mutex_);
  if (snapshots_.erase(id) == 0) return absl::OkStatus();
  const auto named = snapshot_names_.find(snapshot->record.name);
  if (named != snapshot_names_.end() && named->second == id) snapshot_names_.erase(named);
  snapshots_of_[snapshot->volume_id].erase(id);
  --volumes_.at(snapshot->volume_id)->snapshots;
  return absl::OkStatus();
}

std::optional<Group> Catalog::FindGroup(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(id);
  return found == groups_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Group> Catalog::FindGroupByName(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = group_names_.find(name);
  return found == group_names_.end() ? std::nullopt : std::optional(groups_.at(found->second));
}

std::vector<Group> Catalog::AllGroups() const {
  const std::lock_guard lock(mutex_);
  std::vector<Group> all;
  all.reserve(groups_.size());
  for (const auto& [id, group] : groups_) all.push_back(group);
  return all;
}

absl::StatusOr<std::string> Catalog::NewGroupId() { return RandomId(kGroupPrefix); }

absl::Status Catalog::AddGroup(const std::string& id, const GroupRecord& record) {
  if (absl::Status written = Write(GroupFile(id), EncodeGroup(record)); !written.ok()) {
    ::unlink(GroupFile(id).c_str());  // it may be there nevertheless
    return written;
  }
  const std::lock_guard lock(mutex_);
  groups_[id] = {.id = id, .record = record};
  group_names_[record.name] = id;
  return absl::OkStatus();
}

absl::Status Catalog::ChangeGroup(const std::string& id, const GroupRecord& record) {
  if (absl::Status written = Write(GroupFile(id), EncodeGroup(record)); !written.ok()) {
    return written;
  }
  const std::lock_guard lock(mutex_);
  groups_.at(id).record = record;
  return absl::OkStatus();
}

absl::Status Catalog::GiveUpGroup(const std::string& id) {
  if (absl::Status ours = claim_->Check(); !ours.ok()) return ours;
  if (::rename(GroupFile(id).c_str(), (GroupFile(id) + kGone).c_str()) != 0 && errno != ENOENT) {
    return FileError(GroupFile(id), errno);
  }
  if (absl::Status synced = SyncDirectory(groups_directory_); !synced.ok()) return synced;
  const std::lock_guard lock(mutex_);
  Group& group = groups_.at(id);
  group.gone = true;
  const auto named = group_names_.find(group.record.name);
  if (named != group_names_.end() && named->second == id) group_names_.erase(named);
  return absl::OkStatus();
}

absl::Status Catalog::DropGroup(const std::string& id) {
  if (absl::Status ours = claim_->Check(); !ours.ok()) return ours;
  if (absl::Status removed = RemoveFile(GroupFile(id) + kGone); !removed.ok()) return removed;
  const std::lock_guard lock(mutex_);
  groups_.erase(id);
  return absl::OkStatus();
}

}  // namespace cbt::driver

#include "driver/state/store.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/checksum.h"
#include "base/file_io.h"
#include "cbt/extent.h"
#include "volume/snapshot_reader.h"

namespace cbt::driver {
namespace {

// The names of snapshots that exist while a volume is cloned.
constexpr std::string_view kClonePrefix = "clone-";
// How long a call waits for the copy of such a snapshot; the client calls again.
constexpr std::chrono::seconds kCopyWait{20};
constexpr std::chrono::milliseconds kCopyPoll{20};

absl::Status CheckName(const std::string& name) {
  if (name.empty()) return absl::InvalidArgumentError("name: is missing");
  if (name.size() > Store::kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("name: has ", name.size(), " bytes, at most ", Store::kMaxNameBytes));
  }
  const bool has_control = std::any_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
  });
  if (has_control) return absl::InvalidArgumentError("name: has control characters");
  return absl::OkStatus();
}

absl::Status NoVolume(const std::string& id) {
  return absl::NotFoundError("there is no volume " + id);
}

// The same name for each call that makes the same volume.
std::string CloneSnapshot(const std::string& name) {
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(name.data()), name.size());
  return absl::StrCat(std::string(kClonePrefix), absl::StrFormat("%016x", Checksum(bytes)));
}

bool Fits(uint64_t capacity, const CapacityRange& range) {
  return capacity >= range.required && (range.limit == 0 || capacity <= range.limit);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const StoreOptions& options) {
  absl::StatusOr<std::unique_ptr<Catalog>> catalog =
      Catalog::Open(options.state_folder, options.report);
  if (!catalog.ok()) return catalog.status();
  std::unique_ptr<Store> store(new Store(options, *std::move(catalog)));
  store->Recover();
  return store;
}

void Store::Recover() {
  if (const absl::StatusOr<std::vector<std::string>> left = catalog_->Leftovers(); left.ok()) {
    for (const std::string& id : *left) {
      if (absl::Status removed = RemoveFolder(id); !removed.ok()) options_.report(id, removed);
    }
  } else {
    options_.report("", left.status());
  }
  for (const Volume& volume : catalog_->AllVolumes()) {
    LoadSnapshots(volume.id);
    RemoveIfUnused(volume.id);
  }
}

void Store::LoadSnapshots(const std::string& id) {
  const std::vector<std::string> named = catalog_->SnapshotsOf(id);
  const absl::StatusOr<std::unique_ptr<volume::SnapshotReader>> reader =
      volume::SnapshotReader::Open(catalog_->VolumeFolder(id));
  if (!reader.ok()) {
    options_.report(id, reader.status());
    // Snapshots that can't be looked at exist until the volume says otherwise.
    for (const std::string& snapshot : named) {
      catalog_->SetSnapshotInfo(snapshot, volume::SnapshotInfo{.id = snapshot});
    }
    return;
  }
  const std::set<std::string> known(named.begin(), named.end());
  std::vector<std::string> clones;
  for (const volume::SnapshotInfo& info : (*reader)->snapshots()) {
    if (known.contains(info.id)) catalog_->SetSnapshotInfo(info.id, info);
    if (info.id.starts_with(kClonePrefix)) clones.push_back(info.id);
  }
  for (const std::string& clone : clones) {
    if (absl::Status deleted = access_.DeleteSnapshot(id, clone); !deleted.ok()) {
      options_.report(id, deleted);
    }
  }
}

absl::StatusOr<uint64_t> Store::ChooseCapacity(const CapacityRange& range, uint64_t least) const {
  if (range.limit > 0 && range.limit < range.required) {
    return absl::InvalidArgumentError("capacity_range: limit_bytes is below required_bytes");
  }
  uint64_t wanted = std::max(range.required, least);
  if (wanted == 0) {
    wanted = kDefaultCapacity;
    if (range.limit > 0) wanted = std::min(wanted, range.limit / kCapacityUnit * kCapacityUnit);
    wanted = std::max<uint64_t>(wanted, 1);
  }
  if (wanted > kMaxCapacity / kCapacityUnit * kCapacityUnit) {
    return absl::OutOfRangeError(absl::StrCat("capacity_range: at most ",
                                              kMaxCapacity / kCapacityUnit * kCapacityUnit,
                                              " bytes are possible"));
  }
  const uint64_t capacity = (wanted + kCapacityUnit - 1) / kCapacityUnit * kCapacityUnit;
  if (range.limit > 0 && capacity > range.limit) {
    return absl::OutOfRangeError(absl::StrCat("capacity_range: the volume needs ", capacity,
                                              " bytes, limit_bytes is ", range.limit));
  }
  return capacity;
}

absl::Status Store::TakeRoom(uint64_t more) {
  const std::lock_guard lock(room_mutex_);
  if (options_.capacity > 0) {
    const uint64_t used = catalog_->provisioned() + taken_;
    if (used > options_.capacity || more > options_.capacity - used) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "no room for ", more, " bytes: ", used, " of ", options_.capacity, " are provisioned"));
    }
  }
  taken_ += more;
  return absl::OkStatus();
}

void Store::ReturnRoom(uint64_t bytes) {
  const std::lock_guard lock(room_mutex_);
  taken_ -= bytes;
}

absl::StatusOr<uint64_t> Store::AvailableCapacity() const {
  struct statvfs disk = {};
  if (::statvfs(options_.state_folder.c_str(), &disk) != 0) {
    return FileError(options_.state_folder, errno);
  }
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (options_.capacity == 0) return free;
  const std::lock_guard lock(room_mutex_);
  const uint64_t used = catalog_->provisioned() + taken_;
  return used < options_.capacity ? options_.capacity - used : 0;
}

absl::StatusOr<Volume> Store::CreateVolume(const VolumeRequest& request) {
  if (absl::Status name = CheckName(request.name); !name.ok()) return name;
  const absl::StatusOr<KeyLocks::Held> held = locks_.TryAlone("volume name " + request.name);
  if (!held.ok()) return held.status();
  if (std::optional<Volume> found = catalog_->FindVolumeByName(request.name); found.has_value()) {
    if (found->record.source != request.source) {
      return absl::AlreadyExistsError("a volume of this name was made from another source");
    }
    if (!Fits(found->record.capacity, request.range)) {
      return absl::AlreadyExistsError(
          absl::StrCat("a volume of this name exists with ", found->record.capacity, " bytes"));
    }
    return *std::move(found);
  }
  switch (request.source.kind) {
    case ContentSource::Kind::kSnapshot:
      return MakeFromSnapshot(request);
    case ContentSource::Kind::kVolume:
      return MakeClone(request);
    case ContentSource::Kind::kNone:
      break;
  }
  return MakeVolume(request, /*least=*/0, /*image=*/"");
}

absl::StatusOr<Volume> Store::MakeFromSnapshot(const VolumeRequest& request) {
  const std::string& id = request.source.id;
  absl::StatusOr<KeyLocks::Held> held = locks_.TryShared("snapshot " + id);
  if (!held.ok()) return held.status();
  const absl::StatusOr<Snapshot> snapshot = GetSnapshot(id);
  if (!snapshot.ok()) return snapshot.status();
  const absl::StatusOr<std::unique_ptr<volume::SnapshotReader>> reader =
      volume::SnapshotReader::Open(catalog_->VolumeFolder(snapshot->volume_id));
  if (!reader.ok()) return reader.status();
  const absl::StatusOr<std::string> image = (*reader)->PathOf(id);
  if (!image.ok()) return image.status();
  return MakeVolume(request, snapshot->info->size, *image);
}

absl::StatusOr<Volume> Store::MakeClone(const VolumeRequest& request) {
  const std::string& id = request.source.id;
  const std::optional<Volume> source = catalog_->FindVolume(id);
  if (!source.has_value() || source->record.removed) return NoVolume(id);
  absl::StatusOr<KeyLocks::Held> held = locks_.TryShared("volume " + id);
  if (!held.ok()) return held.status();
  if (source->node.has_value() && flush_) {
    if (absl::Status flushed = flush_(*source); !flushed.ok()) return flushed;
  }
  const std::string clone = CloneSnapshot(request.name);
  absl::StatusOr<volume::SnapshotInfo> info = access_.TakeSnapshot(id, clone);
  const auto latest = std::chrono::steady_clock::now() + kCopyWait;
  while (info.ok() && !info->ready) {
    // The snapshot stays, for the next call.
    if (std::chrono::steady_clock::now() > latest) {
      return absl::UnavailableError("the volume is being copied; call again");
    }
    std::this_thread::sleep_for(kCopyPoll);
    info = access_.FindSnapshot(id, clone);
  }
  if (!info.ok()) return info.status();
  absl::StatusOr<Volume> made;
  const absl::StatusOr<std::unique_ptr<volume::SnapshotReader>> reader =
      volume::SnapshotReader::Open(catalog_->VolumeFolder(id));
  if (!reader.ok()) {
    made = reader.status();
  } else if (const absl::StatusOr<std::string> image = (*reader)->PathOf(clone); image.ok()) {
    made = MakeVolume(request, info->size, *image);
  } else {
    made = image.status();
  }
  if (absl::Status deleted = access_.DeleteSnapshot(id, clone); !deleted.ok()) {
    options_.report(id, deleted);
  }
  return made;
}

absl::StatusOr<Volume> Store::MakeVolume(const VolumeRequest& request, uint64_t least,
                                         const std::string& image) {
  const absl::StatusOr<uint64_t> capacity = ChooseCapacity(request.range, least);
  if (!capacity.ok()) return capacity.status();
  if (absl::Status room = TakeRoom(*capacity); !room.ok()) return room;
  absl::StatusOr<std::string> id = catalog_->NewVolume();
  const VolumeRecord record = {.name = request.name,
                               .capacity = *capacity,
                               .source = request.source,
                               .content = request.source.kind == ContentSource::Kind::kNone
                                              ? Content::kBlank
                                              : Content::kUsed};
  absl::Status made = id.status();
  if (made.ok()) {
    made = volume::TrackedVolume::Create(
        catalog_->VolumeFolder(*id), *capacity,
        {.name = *id, .image = image, .granularity = request.granularity});
    if (made.ok()) made = catalog_->AddVolume(*id, record);
    if (!made.ok()) {
      if (absl::Status removed = RemoveFolder(*id); !removed.ok()) options_.report(*id, removed);
    }
  }
  ReturnRoom(*capacity);
  if (!made.ok()) return made;
  return *catalog_->FindVolume(*id);
}

absl::Status Store::SetContent(const std::string& id, Content content) {
  const std::optional<Volume> volume = catalog_->FindVolume(id);
  if (!volume.has_value()) return NoVolume(id);
  if (volume->record.content == content) return absl::OkStatus();
  VolumeRecord record = volume->record;
  record.content = content;
  return catalog_->ChangeVolume(id, record);
}

absl::Status Store::RemoveFolder(const std::string& id) {
  const std::string folder = catalog_->VolumeFolder(id);
  if (absl::Status removed = volume::TrackedVolume::Remove(folder);
      !removed.ok() && removed.code() != absl::StatusCode::kNotFound) {
    return removed;
  }
  std::error_code error;
  std::filesystem::remove_all(catalog_->FolderOf(id), error);
  return error ? FileError(catalog_->FolderOf(id), error.value()) : absl::OkStatus();
}

absl::Status Store::RemoveVolume(const std::string& id) {
  if (absl::Status released = access_.Release(id); !released.ok()) options_.report(id, released);
  if (absl::Status dropped = catalog_->DropVolume(id); !dropped.ok()) return dropped;
  // The volume is gone; what remains of its folder goes at the next start at the latest.
  if (absl::Status removed = RemoveFolder(id); !removed.ok()) options_.report(id, removed);
  return absl::OkStatus();
}

void Store::RemoveIfUnused(const std::string& volume_id) {
  const absl::StatusOr<KeyLocks::Held> held = LockVolume(volume_id);
  if (!held.ok()) return;  // the other operation ends with this too
  const std::optional<Volume> volume = catalog_->FindVolume(volume_id);
  if (!volume.has_value() || !volume->record.removed || volume->snapshots > 0) return;
  if (absl::Status removed = RemoveVolume(volume_id); !removed.ok()) {
    options_.report(volume_id, removed);
  }
}

absl::Status Store::DropReserved(const std::string& volume_id) {
  for (const std::string& id : catalog_->SnapshotsOf(volume_id)) {
    std::optional<Snapshot> snapshot = catalog_->FindSnapshot(id);
    if (!snapshot.has_value() || (snapshot->info.has_value() && snapshot->info->ready)) continue;
    absl::StatusOr<volume::SnapshotInfo> info = access_.FindSnapshot(volume_id, id);
    if (info.ok()) {
      catalog_->SetSnapshotInfo(id, *std::move(info));
    } else if (info.status().code() != absl::StatusCode::kNotFound) {
      return info.status();
    } else if (absl::Status dropped = catalog_->DropSnapshot(id); !dropped.ok()) {
      return dropped;
    }
  }
  return absl::OkStatus();
}

absl::Status Store::DeleteVolume(const std::string& id) {
  if (std::optional<Volume> volume = catalog_->FindVolume(id);
      !volume.has_value() || volume->record.removed) {
    return absl::OkStatus();
  }
  const absl::StatusOr<KeyLocks::Held> held = LockVolume(id);
  if (!held.ok()) return held.status();
  std::optional<Volume> volume = catalog_->FindVolume(id);
  if (!volume.has_value() || volume->record.removed) return absl::OkStatus();
  if (volume->node.has_value()) {
    return absl::FailedPreconditionError("the volume is staged on this node");
  }
  if (volume->snapshots > 0) {
    if (absl::Status dropped = DropReserved(id); !dropped.ok()) return dropped;
    volume = catalog_->FindVolume(id);
  }
  if (volume->snapshots == 0) return RemoveVolume(id);
  VolumeRecord record = volume->record;
  record.removed = true;
  if (absl::Status changed = catalog_->ChangeVolume(id, record); !changed.ok()) return changed;
  if (absl::Status freed = access_.Discard(id); !freed.ok()) options_.report(id, freed);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Store::ExpandVolume(const std::string& id, const CapacityRange& range) {
  const absl::StatusOr<KeyLocks::Held> held = LockVolume(id);
  if (!held.ok()) return held.status();
  const std::optional<Volume> volume = catalog_->FindVolume(id);
  if (!volume.has_value() || volume->record.removed) return NoVolume(id);
  const absl::StatusOr<uint64_t> capacity = ChooseCapacity(range, volume->record.capacity);
  if (!capacity.ok()) return capacity.status();
  if (*capacity == volume->record.capacity) return *capacity;
  if (volume->node.has_value()) {
    return absl::FailedPreconditionError(
        "the volume is staged on this node; it can be expanded while it is not");
  }
  const uint64_t more = *capacity - volume->record.capacity;
  if (absl::Status room = TakeRoom(more); !room.ok()) return room;
  absl::Status done = access_.Resize(id, *capacity);
  if (done.ok()) {
    VolumeRecord record = volume->record;
    record.capacity = *capacity;
    done = catalog_->ChangeVolume(id, record);
  }
  ReturnRoom(more);
  if (!done.ok()) return done;
  return *capacity;
}

bool Store::Refresh(Snapshot& snapshot) {
  if (snapshot.info.has_value() && snapshot.info->ready) return true;
  absl::StatusOr<volume::SnapshotInfo> info = access_.FindSnapshot(snapshot.volume_id, snapshot.id);
  if (info.ok()) {
    snapshot.info = *std::move(info);
  } else if (info.status().code() == absl::StatusCode::kNotFound) {
    snapshot.info.reset();
  } else {
    return snapshot.info.has_value();
  }
  catalog_->SetSnapshotInfo(snapshot.id, snapshot.info);
  return snapshot.info.has_value();
}

absl::StatusOr<Snapshot> Store::GetSnapshot(const std::string& id) {
  std::optional<Snapshot> snapshot = catalog_->FindSnapshot(id);
  if (!snapshot.has_value() || !Refresh(*snapshot)) {
    return absl::NotFoundError("there is no snapshot " + id);
  }
  return *std::move(snapshot);
}

absl::StatusOr<Snapshot> Store::CreateSnapshot(const std::string& volume_id,
                                               const std::string& name) {
  if (absl::Status valid = CheckName(name); !valid.ok()) return valid;
  const absl::StatusOr<KeyLocks::Held> name_held = locks_.TryAlone("snapshot name " + name);
  if (!name_held.ok()) return name_held.status();
  std::optional<Snapshot> found = catalog_->FindSnapshotByName(name);
  if (found.has_value() && found->volume_id != volume_id) {
    if (Refresh(*found)) {
      return absl::AlreadyExistsError("a snapshot of this name is of another volume");
    }
    // Only the name was reserved, and its client has given up.
    if (absl::Status dropped = catalog_->DropSnapshot(found->id); !dropped.ok()) return dropped;
    found.reset();
  }
  if (found.has_value() && found->info.has_value() && found->info->ready) return *found;
  const absl::StatusOr<KeyLocks::Held> held = locks_.TryShared("volume " + volume_id);
  if (!held.ok()) return held.status();
  const std::optional<Volume> volume = catalog_->FindVolume(volume_id);
  if (!volume.has_value() || (volume->record.removed && !found.has_value())) {
    return NoVolume(volume_id);
  }
  std::string id;
  if (found.has_value()) {
    id = found->id;
  } else {
    absl::StatusOr<std::string> reserved = catalog_->ReserveSnapshot(volume_id, name);
    if (!reserved.ok()) return reserved.status();
    id = *std::move(reserved);
  }
  const absl::StatusOr<KeyLocks::Held> id_held = locks_.TryShared("snapshot " + id);
  if (!id_held.ok()) return id_held.status();
  if (volume->node.has_value() && flush_ && (!found.has_value() || !found->info.has_value())) {
    if (absl::Status flushed = flush_(*volume); !flushed.ok()) return flushed;
  }
  // Returns the same one if an earlier call has taken it.
  absl::StatusOr<volume::SnapshotInfo> info = access_.TakeSnapshot(volume_id, id);
  if (!info.ok()) return info.status();
  catalog_->SetSnapshotInfo(id, *std::move(info));
  return *catalog_->FindSnapshot(id);
}

absl::Status Store::DeleteSnapshot(const std::string& id) {
  const std::optional<Snapshot> snapshot = catalog_->FindSnapshot(id);
  if (!snapshot.has_value()) return absl::OkStatus();
  {
    const absl::StatusOr<KeyLocks::Held> held = locks_.TryShared("volume " + snapshot->volume_id);
    if (!held.ok()) return held.status();
    const absl::StatusOr<KeyLocks::Held> id_held = locks_.TryAlone("snapshot " + id);
    if (!id_held.ok()) return id_held.status();
    if (absl::Status deleted = access_.DeleteSnapshot(snapshot->volume_id, id); !deleted.ok()) {
      return deleted;
    }
    if (absl::Status dropped = catalog_->DropSnapshot(id); !dropped.ok()) return dropped;
  }
  RemoveIfUnused(snapshot->volume_id);
  return absl::OkStatus();
}

}  // namespace cbt::driver

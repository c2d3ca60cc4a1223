#include "programs/driver/state/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "programs/driver/state/errors.h"
#include "programs/volume/snapshot_reader.h"
#include "programs/volume/volume_directory.h"

namespace cbt::driver {
namespace {

bool Fits(uint64_t capacity, const CapacityRange& range) {
  return capacity >= range.required && (range.limit == 0 || capacity <= range.limit);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const StoreOptions& options) {
  absl::StatusOr<std::unique_ptr<Catalog>> catalog =
      Catalog::Open(options.state_directory, options.report);
  if (!catalog.ok()) return catalog.status();
  std::unique_ptr<Store> store(new Store(options, *std::move(catalog)));
  store->Recover();
  store->tidy_ = std::thread([opened = store.get()] { opened->KeepTidy(); });
  return store;
}

Store::~Store() {
  {
    const std::lock_guard lock(tidy_mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  if (tidy_.joinable()) tidy_.join();
}

void Store::Recover() {
  if (const absl::StatusOr<std::vector<std::string>> left = catalog_->Leftovers(); left.ok()) {
    for (const std::string& id : *left) {
      if (absl::Status removed = RemoveDirectory(id); !removed.ok()) options_.report(id, removed);
    }
  } else {
    options_.report("", left.status());
  }
  SettleGroups();
  for (const Volume& volume : catalog_->AllVolumes()) {
    if (!volume.claimed) {
      if (absl::Status removed = RemoveUnclaimed(volume.id); !removed.ok()) {
        options_.report(volume.id, removed);
      }
      continue;
    }
    if (!volume.record.view) LoadSnapshots(volume.id);
    RemoveIfUnused(volume.id);
    if (volume.record.removed) AddRemoved(volume.id);
  }
  for (const std::string& id : clones_.suspects()) RemoveStrays(id);
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
  if (wanted > kLargestVolume) {
    return absl::OutOfRangeError(
        absl::StrCat("capacity_range: at most ", kLargestVolume, " bytes (1 PiB) are possible"));
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
  if (::statvfs(options_.state_directory.c_str(), &disk) != 0) {
    return FileError(options_.state_directory, errno);
  }
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (options_.capacity == 0) return free;
  const std::lock_guard lock(room_mutex_);
  const uint64_t used = catalog_->provisioned() + taken_;
  return used < options_.capacity ? options_.capacity - used : 0;
}

absl::StatusOr<Volume> Store::CreateVolume(const VolumeRequest& request,
                                           const CloneAttempts::IsGone& is_gone) {
  if (absl::Status name = CheckName(request.name); !name.ok()) return name;
  const absl::StatusOr<KeyLocks::Held> held = locks_.TryAlone("volume name " + request.name);
  if (!held.ok()) {
    clones_.Touch(request.name);
    return held.status();
  }
  std::optional<Volume> found = catalog_->FindVolumeByName(request.name);
  if (found.has_value() && !found->claimed && !clones_.Has(request.name)) {
    // Made for a client that has given up: older than this call.
    if (absl::Status removed = RemoveUnclaimed(found->id); !removed.ok()) return removed;
    found = catalog_->FindVolumeByName(request.name);
  }
  if (found.has_value()) {
    if (found->record.source != request.source) {
      return absl::AlreadyExistsError("a volume of this name was made from another source");
    }
    if (found->record.view != request.view) {
      return absl::AlreadyExistsError(
          found->record.view ? "a volume of this name exists, to be read only"
                             : "a volume of this name exists, which can be written to");
    }
    if (!Fits(found->record.capacity, request.range)) {
      return absl::AlreadyExistsError(
          absl::StrCat("a volume of this name exists with ", found->record.capacity, " bytes"));
    }
    if (!request.view) {
      const absl::Status same = CheckGranularity(*found, request.granularity);
      if (!same.ok()) return same;
    }
    if (!found->claimed) {
      if (absl::Status claimed = catalog_->ClaimVolume(found->id); !claimed.ok()) return claimed;
      clones_.End(request.name);
    }
    return *std::move(found);
  }
  if (const absl::Status absent = catalog_->AbsentByName(request.name); !absl::IsNotFound(absent)) {
    return absent;
  }
  switch (request.source.kind) {
    case ContentSource::Kind::kSnapshot:
      return MakeFromSnapshot(request);
    case ContentSource::Kind::kVolume:
      return MakeClone(request, is_gone);
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
      volume::SnapshotReader::Open(catalog_->VolumeDirectory(snapshot->volume_id));
  if (!reader.ok()) return reader.status();
  const absl::StatusOr<std::string> image = (*reader)->PathOf(id);
  if (absl::IsNotFound(image.status())) return Lost(*snapshot);  // its file was removed
  if (!image.ok()) return image.status();
  const uint64_t size = snapshot->record.cut->size;
  return request.view ? MakeView(request, size, *image) : MakeVolume(request, size, *image);
}

absl::StatusOr<Volume> Store::MakeView(const VolumeRequest& request, uint64_t size,
                                       const std::string& image) {
  if (!Fits(size, request.range)) {
    return absl::OutOfRangeError(absl::StrCat(
        "capacity_range: a volume that is only read has its snapshot's size, ", size, " bytes"));
  }
  const absl::StatusOr<std::string> id = catalog_->NewVolume();
  if (!id.ok()) return id.status();
  const std::string file = catalog_->paths().ViewFile(*id);
  absl::Status made;
  if (::link(image.c_str(), file.c_str()) != 0) made = FileError(file, errno);
  if (made.ok()) {
    made = catalog_->AddVolume(*id,
                               {.name = request.name,
                                .capacity = size,
                                .source = request.source,
                                .content = Content::kUsed,
                                .view = true},
                               /*claimed=*/true);
  }
  if (!made.ok()) {
    if (absl::Status removed = RemoveDirectory(*id); !removed.ok()) options_.report(*id, removed);
    return made;
  }
  return *catalog_->FindVolume(*id);
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
        catalog_->VolumeDirectory(*id), *capacity,
        {.name = *id, .image = image, .granularity = request.granularity});
    made = ExplainFull(made, *capacity);
    if (made.ok()) {
      const bool claimed = request.source.kind != ContentSource::Kind::kVolume;
      made = catalog_->AddVolume(*id, record, claimed);
    }
    if (!made.ok()) {
      if (absl::Status removed = RemoveDirectory(*id); !removed.ok()) options_.report(*id, removed);
    }
  }
  ReturnRoom(*capacity);
  if (!made.ok()) return made;
  return *catalog_->FindVolume(*id);
}

absl::Status Store::SetContent(const std::string& id, Content content,
                               const std::optional<volume::DataStamp>& left) {
  const std::optional<Volume> volume = catalog_->FindVolume(id);
  if (!volume.has_value()) return NoVolume(id);
  VolumeRecord record = volume->record;
  record.content = content;
  record.left = left;
  return record == volume->record ? absl::OkStatus() : catalog_->ChangeVolume(id, record);
}

absl::StatusOr<volume::DataStamp> Store::StampData(const std::string& id) const {
  const absl::StatusOr<Directory> directory = Directory::Open(catalog_->VolumeDirectory(id));
  if (!directory.ok()) return directory.status();
  const absl::StatusOr<OwnedDescriptor> data =
      directory->OpenFile(volume::kDataName, O_RDONLY | O_NOFOLLOW);
  if (!data.ok()) return data.status();
  return volume::SettleStamp(*directory, data->number());
}

// A volume's own manifest knows its granularity.
absl::Status Store::CheckGranularity(const Volume& volume, uint64_t granularity) const {
  const absl::StatusOr<std::unique_ptr<volume::SnapshotReader>> reader =
      volume::SnapshotReader::Open(catalog_->VolumeDirectory(volume.id));
  if (absl::IsNotFound(reader.status())) return absl::DataLossError(reader.status().message());
  if (!reader.ok()) return reader.status();
  if ((*reader)->granularity() == granularity) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("a volume of this name exists with granularity ",
                                               (*reader)->granularity(), ", not ", granularity));
}

// A disk that is full is another thing than a file system whose files are never that large.
absl::Status Store::ExplainFull(const absl::Status& status, uint64_t capacity) const {
  if (!absl::IsResourceExhausted(status)) return status;
  const OwnedDescriptor file(
      OpenFile(options_.state_directory, O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file.has_value() || ::ftruncate(file.number(), static_cast<off_t>(capacity)) == 0 ||
      errno != EFBIG) {
    return status;
  }
  return absl::OutOfRangeError(
      absl::StrCat("capacity_range: a file of the state directory's file system can't have ",
                   capacity, " bytes"));
}

absl::Status Store::RemoveDirectory(const std::string& id) {
  const std::string directory = catalog_->VolumeDirectory(id);
  if (absl::Status removed = volume::TrackedVolume::Remove(directory);
      !removed.ok() && removed.code() != absl::StatusCode::kNotFound) {
    return removed;
  }
  std::error_code error;
  std::filesystem::remove_all(catalog_->DirectoryOf(id), error);
  return error ? FileError(catalog_->DirectoryOf(id), error.value()) : absl::OkStatus();
}

absl::Status Store::RemoveVolume(const std::string& id) {
  if (absl::Status released = access_.Release(id); !released.ok()) options_.report(id, released);
  clones_.EndAllOf(id);
  if (absl::Status dropped = catalog_->DropVolume(id); !dropped.ok()) return dropped;
  // The volume is gone; what remains of its directory goes at the next start at the latest.
  if (absl::Status removed = RemoveDirectory(id); !removed.ok()) options_.report(id, removed);
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

absl::Status Store::DeleteVolume(const std::string& id) {
  const std::optional<Volume> known = catalog_->FindVolume(id);
  if (!known.has_value()) return OkIfNotFound(NoVolume(id));
  if (known->record.removed) return absl::OkStatus();
  {
    const absl::StatusOr<KeyLocks::Held> held = LockVolume(id);
    if (!held.ok()) return held.status();
    std::optional<Volume> volume = catalog_->FindVolume(id);
    if (!volume.has_value() || volume->record.removed) return absl::OkStatus();
    if (volume->node.has_value()) {
      return absl::FailedPreconditionError("the volume is staged on this node");
    }
    for (const Snapshot& snapshot : catalog_->SnapshotsOf(id)) {
      if (snapshot.state != SnapshotState::kReserved) continue;
      if (absl::Status settled = SettleReserved(snapshot); !settled.ok()) return settled;
    }
    volume = catalog_->FindVolume(id);
    if (volume->snapshots == 0) return RemoveVolume(id);
    VolumeRecord record = volume->record;
    record.removed = true;
    if (absl::Status changed = catalog_->ChangeVolume(id, record); !changed.ok()) return changed;
    clones_.EndAllOf(id);
  }
  AddRemoved(id);
  RemoveStrays(id);
  DiscardRemoved(id);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Store::ExpandVolume(const std::string& id, const CapacityRange& range) {
  const absl::StatusOr<KeyLocks::Held> held = LockVolume(id);
  if (!held.ok()) return held.status();
  const std::optional<Volume> volume = catalog_->FindVolume(id);
  if (!volume.has_value() || volume->record.removed) return NoVolume(id);
  if (volume->record.view) return OnlyRead();
  const absl::StatusOr<uint64_t> capacity = ChooseCapacity(range, volume->record.capacity);
  if (!capacity.ok()) return capacity.status();
  if (*capacity == volume->record.capacity) return *capacity;
  if (volume->node.has_value() && !volume->node->nbd_device.empty()) {
    return absl::FailedPreconditionError(
        "the volume is staged with the kernel's NBD client, whose devices can't grow; it can be "
        "expanded while it is not staged");
  }
  const uint64_t more = *capacity - volume->record.capacity;
  if (absl::Status room = TakeRoom(more); !room.ok()) return room;
  VolumeRecord record = volume->record;
  // Growing is a change of the data, but not one that puts anything there.
  bool as_left = false;
  if (record.left.has_value()) {
    const absl::StatusOr<volume::DataStamp> now = StampData(id);
    as_left = now.ok() && *now == *record.left;
  }
  absl::Status done = ExplainFull(access_.Resize(id, *capacity), *capacity);
  if (done.ok()) {
    record.capacity = *capacity;
    if (as_left) {
      if (const absl::StatusOr<volume::DataStamp> grown = StampData(id); grown.ok()) {
        record.left = *grown;
      }
    }
    done = catalog_->ChangeVolume(id, record);
  }
  ReturnRoom(more);
  if (!done.ok()) return done;
  return *capacity;
}

}  // namespace cbt::driver

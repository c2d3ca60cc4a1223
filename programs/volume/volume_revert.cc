// Going back to a snapshot.
//
// What may differ from the snapshot is known: the maps since it, and what was written since the
// newest one. All of it is marked first, then the file REVERT names the snapshot, then the data is
// made that of the snapshot, and REVERT is removed. Whatever interrupts that, the next Open() finds
// REVERT and begins again: neither the snapshot nor the maps have changed, and a mark that was made
// is never lost.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/manifest_bytes.h"
#include "programs/volume/file_copy.h"
#include "programs/volume/volume_core.h"

namespace cbt::volume {
namespace {

constexpr ManifestKind kRevertKind = {.magic = {0x89, 'C', 'B', 'W', '\r', '\n', 0x1a, '\n'},
                                      .major = 1,
                                      .minor = 0,
                                      .owner = "revert"};
constexpr uint64_t kMaxRevertBytes = 4096;

absl::Status WriteRevert(const Directory& directory, const std::string& name) {
  ManifestWriter writer(kRevertKind);
  writer.Text(name);
  const std::vector<uint8_t> bytes = std::move(writer).Finish();
  const std::array<std::span<const uint8_t>, 1> parts = {bytes};
  return directory.Write(kRevertName, parts, /*sync=*/true);
}

// The name of the snapshot. NOT_FOUND if no revert was interrupted.
absl::StatusOr<std::string> ReadRevert(const Directory& directory) {
  const absl::StatusOr<std::vector<uint8_t>> bytes = directory.Read(kRevertName, kMaxRevertBytes);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<ManifestReader> reader =
      ManifestReader::Open(*bytes, kRevertKind, directory.Shown(kRevertName));
  if (absl::IsInvalidArgument(reader.status())) {
    return absl::DataLossError(reader.status().message());
  }
  if (!reader.ok()) return reader.status();
  const size_t begin = reader->at();
  std::string name = reader->Text();
  if (!reader->ended() || name.empty()) return reader->Damaged(begin, "not a snapshot's name");
  return name;
}

absl::Status RemoveRevert(const Directory& directory) {
  if (!directory.Remove(kRevertName)) return FileError(directory.Shown(kRevertName), errno);
  return directory.Sync();
}

}  // namespace

absl::Status TrackedVolume::Core::Attach() {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  const std::lock_guard<std::mutex> lock(work_mutex_);
  if (reverting_.load()) return Reverting();
  ++users_;
  return absl::OkStatus();
}

void TrackedVolume::Core::Detach() noexcept {
  const std::lock_guard<std::mutex> lock(work_mutex_);
  --users_;
}

// The file of a snapshot that is ready, as large as it was.
absl::StatusOr<OwnedDescriptor> TrackedVolume::Core::OpenSnapshot(const std::string& name,
                                                                  uint64_t size) const {
  absl::StatusOr<OwnedDescriptor> file = snapshot_files_->OpenFile(name, O_RDONLY | O_NOFOLLOW);
  if (!file.ok()) return file.status();
  struct stat stat;
  if (::fstat(file->number(), &stat) != 0) return FileError(snapshot_files_->Shown(name), errno);
  if (!S_ISREG(stat.st_mode) || static_cast<uint64_t>(stat.st_size) != size) {
    return absl::DataLossError(absl::StrCat(snapshot_files_->Shown(name), ": has ", stat.st_size,
                                            " bytes, the snapshot had ", size));
  }
  return file;
}

// Requires: admin_, and one epoch is open: that since the newest snapshot.
absl::Status TrackedVolume::Core::MarkSince(const std::string& name) {
  const absl::StatusOr<std::unique_ptr<ExtentCursor>> delta =
      chain_->Delta(name, chain_->snapshots().back().id);
  if (!delta.ok()) return delta.status();
  written_.store(true);
  return ForEachBatch(**delta, [this](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      absl::Status status = tracker_->Mark(batch[i]);
      if (status.ok()) continue;
      AskForRepair(status);
      return status;
    }
    return absl::OkStatus();
  });
}

// Requires: admin_. All that may differ from the snapshot is marked, and REVERT is on disk.
absl::Status TrackedVolume::Core::FinishRevert(int snapshot, uint64_t size) {
  const GateHold hold(gate_);
  const absl::StatusOr<ChangeMap> changes = tracker_->Changes();
  if (!changes.ok()) return changes.status();
  const std::unique_ptr<ExtentCursor> cursor = MakeChangeMapCursor(*changes);
  absl::Status status = ForEachBatch(*cursor, [&](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      int error = 0;
      for (const std::shared_ptr<SnapshotCopy>& copy : copies_) {
        if (error == 0) error = copy->Preserve(batch[i]);
      }
      if (error == 0) error = RestoreRange(snapshot, size, data_.number(), batch[i]);
      if (error != 0) return FileError(directory_->Shown(kDataName), error);
    }
    return absl::OkStatus();
  });
  if (status.ok()) status = Sync();
  if (status.ok()) status = RemoveRevert(*directory_);
  return status;
}

// Called by Open(), before anybody else sees the volume.
absl::Status TrackedVolume::Core::ResumeRevert() {
  const absl::StatusOr<std::string> name = ReadRevert(*directory_);
  if (absl::IsNotFound(name.status())) return absl::OkStatus();
  if (!name.ok()) return name.status();
  const auto record = std::find_if(records_.begin(), records_.end(), [&](const auto& each) {
    return each.info.ready && each.name == *name;
  });
  if (record == records_.end()) {
    return absl::DataLossError(absl::StrCat(directory_->Shown(kDataName),
                                            ": is half way back to \"", *name,
                                            "\", a snapshot that is gone"));
  }
  const absl::StatusOr<OwnedDescriptor> snapshot = OpenSnapshot(*name, record->info.size);
  if (!snapshot.ok()) return snapshot.status();
  if (absl::Status status = MarkSince(*name); !status.ok()) return status;
  return FinishRevert(snapshot->number(), record->info.size);
}

// Requires: admin_, and no user is attached. Sets open_ to false if `data` may be a mixture.
absl::Status TrackedVolume::Core::RevertUnused(const std::string& id) {
  const SnapshotRecord* const record = FindRecord(id);
  if (record == nullptr) return NoSnapshot(id);
  if (!record->info.ready) return NotReady(id);
  const std::string name = record->name;
  const uint64_t size = record->info.size;
  const absl::StatusOr<OwnedDescriptor> snapshot = OpenSnapshot(name, size);
  if (!snapshot.ok()) return snapshot.status();
  if (absl::Status status = Sync(); !status.ok()) return status;
  if (absl::Status status = MarkSince(name); !status.ok()) return status;
  open_.store(false);
  absl::Status status = WriteRevert(*directory_, name);
  // REVERT may be there or not.
  const bool begun = status.ok() || !RemoveRevert(*directory_).ok();
  if (status.ok()) status = FinishRevert(snapshot->number(), size);
  if (status.ok() || !begun) open_.store(true);
  return status;
}

absl::Status TrackedVolume::Core::Revert(const std::string& id) {
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  if (absl::Status status = CheckSnapshotId(id); !status.ok()) return status;
  const std::lock_guard<std::mutex> open(close_);
  const std::lock_guard<std::mutex> admin(admin_);
  if (absl::Status status = CheckUsable(); !status.ok()) return status;
  if (absl::Status status = FinishEpoch(); !status.ok()) return status;
  {
    const std::lock_guard<std::mutex> lock(work_mutex_);
    if (users_ > 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the volume has ", users_,
          " connections, and what their clients remember would not go back: disconnect them"));
    }
    reverting_.store(true);
  }
  const absl::Cleanup whole = [this] {
    if (open_.load()) reverting_.store(false);
  };
  const absl::Status status = RevertUnused(id);
  if (open_.load()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(),
                                   ": the volume is half way back to the snapshot; restart its "
                                   "server, which finishes that"));
}

}  // namespace cbt::volume

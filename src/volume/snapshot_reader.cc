#include "volume/snapshot_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/change_chain.h"
#include "map/folder/folder.h"
#include "volume/snapshot_copy.h"
#include "volume/volume_folder.h"
#include "volume/volume_manifest.h"

namespace cbt::volume {

class SnapshotReader::Core {
 public:
  Core(std::string path, VolumeManifest manifest)
      : path(std::move(path)), manifest(std::move(manifest)) {}

  const SnapshotRecord* Find(std::string_view id) const noexcept {
    const auto found = std::find_if(records.begin(), records.end(),
                                    [id](const auto& record) { return record.info.id == id; });
    return found == records.end() ? nullptr : &*found;
  }

  const std::string path;
  const VolumeManifest manifest;
  std::unique_ptr<const ChangeChain> chain;
  std::vector<SnapshotRecord> records;
  std::vector<SnapshotInfo> infos;
};

SnapshotReader::SnapshotReader(std::unique_ptr<Core> core) : core_(std::move(core)) {}
SnapshotReader::~SnapshotReader() = default;

absl::StatusOr<std::unique_ptr<SnapshotReader>> SnapshotReader::Open(const std::string& folder) {
  absl::StatusOr<Folder> opened = Folder::Open(folder);
  if (!opened.ok()) return opened.status();
  absl::StatusOr<VolumeManifest> manifest = ReadVolumeManifest(*opened);
  if (!manifest.ok()) return manifest.status();
  auto core = std::make_unique<Core>(folder, *std::move(manifest));
  const auto lost = [](absl::Status status) {
    return absl::IsNotFound(status) ? absl::DataLossError(status.message()) : status;
  };
  // The chain first: a snapshot that is deleted meanwhile is not listed.
  absl::StatusOr<std::unique_ptr<ChangeChain>> chain =
      ChangeChain::Open(absl::StrCat(folder, "/", kChainName), ChangeChain::Access::kRead);
  if (!chain.ok()) return lost(chain.status());
  core->chain = *std::move(chain);
  absl::StatusOr<Folder> snapshots = Folder::Open(absl::StrCat(folder, "/", kSnapshotsName));
  if (!snapshots.ok()) return lost(snapshots.status());
  absl::StatusOr<Folder> copying = Folder::Open(absl::StrCat(folder, "/", kCopyingName));
  if (!copying.ok()) return lost(copying.status());
  for (const ChainSnapshot& entry : core->chain->snapshots()) {
    if (IdOf(entry.id).empty()) continue;
    // First where it is while it is copied: it moves from there.
    absl::StatusOr<SnapshotInfo> being_copied = SnapshotCopy::ReadInfo(*copying, entry.id);
    absl::StatusOr<SnapshotInfo> info = ReadSnapshotFile(*snapshots, entry.id);
    if (absl::IsNotFound(info.status())) info = std::move(being_copied);
    if (absl::IsNotFound(info.status())) continue;
    if (!info.ok()) return info.status();
    if (info->size != entry.capacity) {
      return absl::DataLossError(absl::StrCat(snapshots->Shown(entry.id), ": has ", info->size,
                                              " bytes, the snapshot had ", entry.capacity));
    }
    core->records.push_back({entry.id, *std::move(info)});
  }
  DropSuperseded(core->records);
  for (const SnapshotRecord& record : core->records) core->infos.push_back(record.info);
  return std::unique_ptr<SnapshotReader>(new SnapshotReader(std::move(core)));
}

const std::string& SnapshotReader::name() const noexcept { return core_->manifest.name; }
uint64_t SnapshotReader::capacity() const noexcept { return core_->manifest.capacity; }
uint64_t SnapshotReader::granularity() const noexcept { return core_->manifest.granularity; }
const std::vector<SnapshotInfo>& SnapshotReader::snapshots() const noexcept { return core_->infos; }

absl::StatusOr<SnapshotInfo> SnapshotReader::Find(std::string_view id) const {
  const SnapshotRecord* const record = core_->Find(id);
  if (record == nullptr) return NoSnapshot(id);
  return record->info;
}

absl::StatusOr<std::string> SnapshotReader::PathOf(std::string_view id) const {
  const SnapshotRecord* const record = core_->Find(id);
  if (record == nullptr) return NoSnapshot(id);
  if (!record->info.ready) return NotReady(id);
  return absl::StrCat(core_->path, "/", kSnapshotsName, "/", record->name);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> SnapshotReader::Delta(std::string_view base,
                                                                    std::string_view target) const {
  for (const std::string_view id : {base, target}) {
    if (absl::StatusOr<std::string> path = PathOf(id); !path.ok()) return path.status();
  }
  return core_->chain->Delta(core_->Find(base)->name, core_->Find(target)->name);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> SnapshotReader::Allocated(std::string_view id) const {
  absl::StatusOr<std::string> path = PathOf(id);
  if (!path.ok()) return path.status();
  return AllocatedIn(*path, id, granularity());
}

}  // namespace cbt::volume

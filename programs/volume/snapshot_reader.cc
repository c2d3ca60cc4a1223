#include "programs/volume/snapshot_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/directory.h"
#include "cbt/change_chain.h"
#include "map/chain/chain_access.h"
#include "programs/volume/snapshot_copy.h"
#include "programs/volume/volume_directory.h"
#include "programs/volume/volume_manifest.h"

namespace cbt::volume {

class SnapshotReader::Core {
 public:
  Core(std::string path, VolumeManifest manifest, Directory snapshots)
      : path(std::move(path)), manifest(std::move(manifest)), snapshots(std::move(snapshots)) {}

  const SnapshotRecord* Find(std::string_view id) const noexcept {
    const auto found = std::find_if(records.begin(), records.end(),
                                    [id](const auto& record) { return record.info.id == id; });
    return found == records.end() ? nullptr : &*found;
  }

  // The file name of a snapshot that is ready.
  absl::StatusOr<std::string> NameOf(std::string_view id) const {
    const SnapshotRecord* const record = Find(id);
    if (record == nullptr) return NoSnapshot(id);
    if (!record->info.ready) return NotReady(id);
    return record->name;
  }

  const std::string path;
  const VolumeManifest manifest;
  const Directory snapshots;
  std::unique_ptr<const ChangeChain> chain;
  std::vector<SnapshotRecord> records;
  std::vector<SnapshotInfo> infos;
  std::vector<MarkRecord> mark_records;
  std::vector<SnapshotMark> marks;
};

SnapshotReader::SnapshotReader(std::unique_ptr<Core> core) : core_(std::move(core)) {}
SnapshotReader::~SnapshotReader() = default;

absl::StatusOr<std::unique_ptr<SnapshotReader>> SnapshotReader::Open(const std::string& directory) {
  absl::StatusOr<Directory> opened = Directory::Open(directory);
  if (!opened.ok()) return opened.status();
  absl::StatusOr<VolumeManifest> manifest = ReadVolumeManifest(*opened);
  if (!manifest.ok()) return manifest.status();
  const auto lost = [](absl::Status status) {
    return absl::IsNotFound(status) ? absl::DataLossError(status.message()) : status;
  };
  // The chain first: a snapshot that is deleted meanwhile is not listed.
  const absl::StatusOr<Directory> chain_directory = opened->OpenDirectory(kChainName);
  if (!chain_directory.ok()) return lost(chain_directory.status());
  absl::StatusOr<std::unique_ptr<ChangeChain>> chain =
      OpenChainIn(*chain_directory, ChangeChain::Access::kRead);
  if (!chain.ok()) return lost(chain.status());
  const absl::StatusOr<Directory> snapshots = opened->OpenDirectory(kSnapshotsName);
  if (!snapshots.ok()) return lost(snapshots.status());
  const absl::StatusOr<Directory> copying = opened->OpenDirectory(kCopyingName);
  if (!copying.ok()) return lost(copying.status());
  auto core = std::make_unique<Core>(directory, *std::move(manifest), *snapshots);
  core->chain = *std::move(chain);
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
  // After the snapshots: the mark of one that is deleted is there before its file is gone. A volume
  // of an earlier version has no directory of marks.
  if (const absl::StatusOr<Directory> directory_of_marks = opened->OpenDirectory(kMarksName);
      directory_of_marks.ok()) {
    absl::StatusOr<std::vector<MarkRecord>> marks =
        ReadMarks(*core->chain, core->records, *directory_of_marks);
    if (!marks.ok()) return marks.status();
    core->mark_records = *std::move(marks);
  } else if (!absl::IsNotFound(directory_of_marks.status())) {
    return directory_of_marks.status();
  }
  for (const MarkRecord& record : core->mark_records) core->marks.push_back(record.mark);
  return std::unique_ptr<SnapshotReader>(new SnapshotReader(std::move(core)));
}

const std::string& SnapshotReader::name() const noexcept { return core_->manifest.name; }
uint64_t SnapshotReader::capacity() const noexcept { return core_->manifest.capacity; }
uint64_t SnapshotReader::granularity() const noexcept { return core_->manifest.granularity; }
const std::vector<SnapshotInfo>& SnapshotReader::snapshots() const noexcept { return core_->infos; }
const std::vector<SnapshotMark>& SnapshotReader::marks() const noexcept { return core_->marks; }

absl::StatusOr<SnapshotInfo> SnapshotReader::Find(std::string_view id) const {
  const SnapshotRecord* const record = core_->Find(id);
  if (record == nullptr) return NoSnapshot(id);
  return record->info;
}

absl::StatusOr<std::string> SnapshotReader::PathOf(std::string_view id) const {
  const absl::StatusOr<std::string> name = core_->NameOf(id);
  if (!name.ok()) return name.status();
  return PathOfSnapshot(core_->path, core_->snapshots, *name);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> SnapshotReader::Delta(std::string_view base,
                                                                    std::string_view target) const {
  const absl::StatusOr<std::string> from = NameOfBase(base, core_->records, core_->mark_records);
  if (!from.ok()) return from.status();
  const absl::StatusOr<std::string> to = core_->NameOf(target);
  if (!to.ok()) return to.status();
  return core_->chain->Delta(*from, *to);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> SnapshotReader::Allocated(std::string_view id) const {
  const absl::StatusOr<std::string> name = core_->NameOf(id);
  if (!name.ok()) return name.status();
  return AllocatedIn(core_->snapshots, *name, id, granularity());
}

}  // namespace cbt::volume

#include "programs/volume/volume_directory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/source/image.h"

namespace cbt::volume {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

}  // namespace

std::string TrackerName(uint64_t number) { return absl::StrCat(AbslView(kTrackerPrefix), number); }

std::string_view IdOf(std::string_view name) { return name.substr(0, name.find('#')); }

std::string NameFor(const ChangeChain& chain, const std::string& id) {
  std::string name = id;
  for (uint64_t i = 1; chain.Contains(name); ++i) name = absl::StrCat(id, "#", i);
  return name;
}

int64_t ToNanoseconds(const timespec& time) noexcept {
  return int64_t{time.tv_sec} * kSecond + time.tv_nsec;
}

timespec ToTimespec(int64_t nanoseconds) noexcept {
  return {.tv_sec = nanoseconds / kSecond, .tv_nsec = nanoseconds % kSecond};
}

absl::StatusOr<SnapshotInfo> ReadSnapshotFile(const Directory& snapshots, const std::string& name) {
  struct stat stat;
  if (::fstatat(snapshots.descriptor(), name.c_str(), &stat, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return NoSnapshot(IdOf(name));
    return FileError(snapshots.Shown(name), errno);
  }
  if (!S_ISREG(stat.st_mode)) {
    return absl::DataLossError(absl::StrCat(snapshots.Shown(name), ": not a regular file"));
  }
  return SnapshotInfo{.id = std::string(IdOf(name)),
                      .created_ns = ToNanoseconds(stat.st_mtim),
                      .size = static_cast<uint64_t>(stat.st_size),
                      .ready = true};
}

void DropSuperseded(std::vector<SnapshotRecord>& records) {
  std::set<std::string_view> newer;
  std::vector<SnapshotRecord> kept;
  for (size_t i = records.size(); i-- > 0;) {
    if (newer.insert(IdOf(records[i].name)).second) kept.push_back(records[i]);
  }
  std::reverse(kept.begin(), kept.end());
  records = std::move(kept);
}

absl::StatusOr<std::vector<SnapshotRecord>> ReadSnapshots(const ChangeChain& chain,
                                                          const Directory& snapshots) {
  std::vector<SnapshotRecord> records;
  for (const ChainSnapshot& entry : chain.snapshots()) {
    if (IdOf(entry.id).empty()) continue;
    absl::StatusOr<SnapshotInfo> info = ReadSnapshotFile(snapshots, entry.id);
    if (absl::IsNotFound(info.status())) continue;
    if (!info.ok()) return info.status();
    if (info->size != entry.capacity) {
      return absl::DataLossError(absl::StrCat(snapshots.Shown(entry.id), ": has ", info->size,
                                              " bytes, the snapshot had ", entry.capacity));
    }
    records.push_back({entry.id, *std::move(info)});
  }
  return records;
}

absl::StatusOr<std::vector<MarkRecord>> ReadMarks(const ChangeChain& chain,
                                                  const std::vector<SnapshotRecord>& snapshots,
                                                  const Directory& marks) {
  absl::StatusOr<std::vector<std::string>> files = marks.List();
  if (!files.ok()) return files.status();
  const std::set<std::string_view> marked(files->begin(), files->end());
  std::set<std::string_view> taken;
  for (const SnapshotRecord& record : snapshots) taken.insert(IdOf(record.name));
  std::vector<MarkRecord> records;
  const std::vector<ChainSnapshot> entries = chain.snapshots();
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const std::string_view id = IdOf(entry->id);
    if (id.empty() || !marked.contains(entry->id) || !taken.insert(id).second) continue;
    records.push_back(
        {entry->id, {.id = std::string(id), .created_ns = entry->time, .size = entry->capacity}});
  }
  std::reverse(records.begin(), records.end());
  return records;
}

absl::StatusOr<std::string> NameOfBase(std::string_view id,
                                       const std::vector<SnapshotRecord>& snapshots,
                                       const std::vector<MarkRecord>& marks) {
  for (const SnapshotRecord& record : snapshots) {
    if (record.info.id != id) continue;
    if (!record.info.ready) return NotReady(id);
    return record.name;
  }
  for (const MarkRecord& record : marks) {
    if (record.mark.id == id) return record.name;
  }
  return absl::NotFoundError(
      absl::StrCat("the volume has no snapshot \"", AbslView(id), "\", and no mark of it"));
}

absl::Status NoSnapshot(std::string_view id) {
  return absl::NotFoundError(absl::StrCat("the volume has no snapshot \"", AbslView(id), "\""));
}

absl::Status NotReady(std::string_view id) {
  return absl::UnavailableError(
      absl::StrCat("snapshot \"", AbslView(id), "\" is not ready: its data is being copied"));
}

absl::StatusOr<std::string> PathOfSnapshot(const std::string& directory, const Directory& snapshots,
                                           const std::string& name) {
  std::string path = absl::StrCat(directory, "/", kSnapshotsName, "/", name);
  struct stat held;
  struct stat named;
  if (::fstatat(snapshots.descriptor(), name.c_str(), &held, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? NoSnapshot(IdOf(name)) : FileError(snapshots.Shown(name), errno);
  }
  if (::lstat(path.c_str(), &named) != 0 || named.st_dev != held.st_dev ||
      named.st_ino != held.st_ino) {
    return absl::AbortedError(absl::StrCat(
        directory,
        ": is not the volume that was opened by this path: it was moved; open it again"));
  }
  return path;
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> AllocatedIn(const Directory& snapshots,
                                                          const std::string& name,
                                                          std::string_view id,
                                                          uint64_t granularity) {
  absl::StatusOr<std::shared_ptr<const Image>> image = Image::Open(snapshots.PathOf(name), id);
  if (absl::IsNotFound(image.status())) return NoSnapshot(id);
  if (!image.ok()) return image.status();
  return MakeImageAllocationCursor(*std::move(image), {.block_size = granularity});
}

}  // namespace cbt::volume

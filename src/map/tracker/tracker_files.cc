#include "map/tracker/tracker_files.h"

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/text.h"
#include "map/map_file.h"

namespace cbt {
namespace {

constexpr char kManifestName[] = "TRACKER";
constexpr char kMapPrefix[] = "changes-";
constexpr char kMapExtension[] = ".cbm";
constexpr char kLogPrefix[] = "regions-";
constexpr char kLogExtension[] = ".log";
// The prefix of files of the first version of the format, which had no manifest.
constexpr char kFirstVersionPrefix[] = "epoch-";

// A manifest has two epochs, three names and a log for each failed checkpoint.
constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 24;

std::string MapName(uint64_t number) { return absl::StrCat(kMapPrefix, number, kMapExtension); }
std::string LogName(uint64_t number) { return absl::StrCat(kLogPrefix, number, kLogExtension); }

bool IsMapOrLog(const std::string& name) {
  return (absl::StartsWith(name, kMapPrefix) && absl::EndsWith(name, kMapExtension)) ||
         (absl::StartsWith(name, kLogPrefix) && absl::EndsWith(name, kLogExtension));
}

// A partial file that a crash left.
bool IsPartial(const std::string& name) {
  return absl::StartsWith(name, ".") && absl::EndsWith(name, AbslView(kPartialExtension)) &&
         (absl::StartsWith(name, absl::StrCat(".", kManifestName)) ||
          absl::StartsWith(name, absl::StrCat(".", kMapPrefix)) ||
          absl::StartsWith(name, absl::StrCat(".", kLogPrefix)));
}

std::set<std::string> NamedBy(const TrackerManifest& manifest) {
  std::set<std::string> names;
  for (const TrackedEpoch& epoch : manifest.epochs) {
    if (epoch.map.number != 0) names.insert(MapName(epoch.map.number));
    for (const ManifestFile& log : epoch.logs) names.insert(LogName(log.number));
  }
  if (manifest.late.has_value()) names.insert(MapName(manifest.late->map.number));
  return names;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrackerFiles>> TrackerFiles::Open(const std::string& path) {
  if (absl::Status status = MakeDirectory(path, true); !status.ok()) return status;
  const absl::StatusOr<Directory> directory = Directory::Open(path);
  if (!directory.ok()) return directory.status();
  return Open(*directory);
}

absl::StatusOr<std::unique_ptr<TrackerFiles>> TrackerFiles::Open(const Directory& directory) {
  absl::StatusOr<std::unique_ptr<DirectoryClaim>> claim = DirectoryClaim::Take(directory);
  if (!claim.ok()) return claim.status();
  return std::unique_ptr<TrackerFiles>(new TrackerFiles(*std::move(claim)));
}

TrackerFiles::TrackerFiles(std::unique_ptr<DirectoryClaim> claim)
    : claim_(std::move(claim)),
      no_memory_(absl::ResourceExhaustedError(absl::StrCat(claim_->directory().Shown(kManifestName),
                                                           ": out of memory while writing it"))) {}

absl::StatusOr<bool> TrackerFiles::IsUsed() const {
  const absl::StatusOr<std::vector<std::string>> names = directory().List();
  if (!names.ok()) return names.status();
  const auto is_tracker = [](const std::string& name) {
    return name == kManifestName || IsMapOrLog(name) || absl::StartsWith(name, kFirstVersionPrefix);
  };
  const auto used = std::count_if(names->begin(), names->end(), is_tracker);
  const std::string first = LogName(1);
  if (used != 1 || std::find(names->begin(), names->end(), first) == names->end()) return used > 0;
  const absl::StatusOr<RegionLog::Contents> log = RegionLog::Read(directory(), first);
  return !log.ok() || !log->sound || !log->regions.empty();
}

// A read error may go away; a file that is missing or wrong is lost.
absl::Status TrackerFiles::Lost(const std::string& file, const absl::Status& why) const {
  if (absl::IsNotFound(why)) {
    return absl::DataLossError(absl::StrCat(directory().Shown(file), ": is missing"));
  }
  if (absl::IsInvalidArgument(why)) return absl::DataLossError(why.message());
  return why;
}

absl::StatusOr<ChangeMap> TrackerFiles::ReadMap(const ManifestFile& file) const {
  if (file.number == 0) return ChangeMap::Empty(manifest_.geometry);
  const std::string name = MapName(file.number);
  const absl::StatusOr<std::vector<uint8_t>> bytes = directory().Read(name, kMaxMapFileBytes);
  if (!bytes.ok()) return Lost(name, bytes.status());
  const std::string shown = directory().Shown(name);
  const absl::StatusOr<MapFileParts> parts = ParseMapFile(*bytes, shown);
  if (!parts.ok()) return Lost(name, parts.status());
  if (parts->header.checksum != file.checksum || parts->header.geometry != manifest_.geometry) {
    return absl::DataLossError(absl::StrCat(shown, ": is not the map that the manifest names"));
  }
  absl::StatusOr<ChangeMap> map = DecodeChangeMap(*bytes, shown);
  if (!map.ok()) return Lost(name, map.status());
  return map;
}

absl::StatusOr<TrackerFiles::Epoch> TrackerFiles::ReadEpoch(const TrackedEpoch& files) const {
  const VolumeGeometry& geometry = manifest_.geometry;
  absl::StatusOr<ChangeMap> map = ReadMap(files.map);
  if (!map.ok()) return map.status();
  bool exact = files.exact;
  absl::StatusOr<ChangeMapBuilder> builder = ChangeMapBuilder::Create(geometry);
  if (!builder.ok()) return builder.status();
  for (const ManifestFile& file : files.logs) {
    const std::string name = LogName(file.number);
    const absl::StatusOr<RegionLog::Contents> log = RegionLog::Read(directory(), name);
    if (!log.ok()) return Lost(name, log.status());
    const RegionLogHeader& header = log->header;
    if (log->checksum != file.checksum || header.tracker != manifest_.id ||
        header.geometry != geometry || header.number != file.number ||
        header.epoch != files.number || header.base != files.base ||
        header.volume != manifest_.volume) {
      return absl::DataLossError(
          absl::StrCat(directory().Shown(name), ": is not the log that the manifest names"));
    }
    // An unsound log proves nothing: everything may be dirty.
    if (!log->sound) {
      if (absl::Status status = builder->Add({0, geometry.capacity}); !status.ok()) return status;
    }
    for (const uint64_t region : log->regions) {
      const uint64_t begin = region * header.region_bytes;
      const uint64_t length = std::min(header.region_bytes, geometry.capacity - begin);
      if (absl::Status status = builder->Add({begin, length}); !status.ok()) return status;
    }
    exact &= log->sound && log->regions.empty();
  }
  const absl::StatusOr<ChangeMap> regions = builder->Build();
  if (!regions.ok()) return regions.status();
  if (absl::Status status = map->UniteWith(*regions); !status.ok()) return status;
  return Epoch{files, *std::move(map), exact};
}

absl::StatusOr<TrackerFiles::Contents> TrackerFiles::Read(const std::string& volume,
                                                          const VolumeGeometry& geometry) {
  // A killed process may have left names that are not on disk yet. New files depend on them, so
  // sync them first.
  if (absl::Status status = directory().Sync(); !status.ok()) return status;
  const absl::StatusOr<std::vector<uint8_t>> bytes =
      directory().Read(kManifestName, kMaxManifestBytes);
  if (absl::IsNotFound(bytes.status())) {
    const absl::StatusOr<bool> used = IsUsed();
    if (!used.ok()) return used.status();
    if (!*used)
      return absl::NotFoundError(
          absl::StrCat(directory().shown(), ": no tracker in this directory"));
    return absl::DataLossError(absl::StrCat(
        directory().shown(), ": contains the files of a tracker but no manifest (", kManifestName,
        "), so its changes are unknown: remove them, create a new tracker and take a full "
        "backup"));
  }
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<TrackerManifest> manifest =
      DecodeTrackerManifest(*bytes, directory().Shown(kManifestName));
  if (!manifest.ok()) return Lost(kManifestName, manifest.status());
  if (manifest->geometry != geometry || manifest->volume != volume) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory().shown(), ": belongs to another volume, or has another size or granularity"));
  }
  manifest_ = *std::move(manifest);
  next_file_ = manifest_.next_file;
  const std::set<std::string> named = NamedBy(manifest_);
  if (manifest_.opening) manifest_.DropNewer();
  Contents contents;
  contents.closed = manifest_.closed;
  for (const TrackedEpoch& files : manifest_.epochs) {
    absl::StatusOr<Epoch> epoch = ReadEpoch(files);
    if (!epoch.ok()) return epoch.status();
    contents.epochs.push_back(*std::move(epoch));
  }
  if (manifest_.late.has_value()) {
    absl::StatusOr<ChangeMap> late = ReadMap(manifest_.late->map);
    if (!late.ok()) return late.status();
    contents.late = *std::move(late);
  }
  const absl::StatusOr<std::vector<std::string>> names = directory().List();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (IsMapOrLog(name) || IsPartial(name)) present_.insert(name);
  }
  RemoveAllBut(named);
  return contents;
}

absl::StatusOr<std::shared_ptr<RegionLog>> TrackerFiles::CreateLog(RegionLogHeader header) {
  if (absl::Status status = claim_->Check(); !status.ok()) return status;
  header.number = next_file_++;
  const std::string name = LogName(header.number);
  present_.insert(name);
  return RegionLog::Create(directory(), name, header);
}

absl::StatusOr<ManifestFile> TrackerFiles::WriteMap(const ChangeMap& map) {
  if (absl::Status status = claim_->Check(); !status.ok()) return status;
  const uint64_t number = next_file_++;
  const std::string name = MapName(number);
  present_.insert(name);
  const absl::StatusOr<ChangeMapHeader> header = WriteMapIn(directory(), name, map, true);
  if (!header.ok()) return header.status();
  return ManifestFile{number, header->checksum};
}

absl::Status TrackerFiles::Commit(TrackerManifest next) {
  if (absl::Status status = claim_->Check(); !status.ok()) return status;
  next.next_file = next_file_;
  // Allocate everything first: an exception then changes nothing.
  const std::vector<uint8_t> before = EncodeManifest(manifest_);
  const std::vector<uint8_t> bytes = EncodeManifest(next);
  const std::span<const uint8_t> parts[] = {bytes};
  const std::set<std::string> named = NamedBy(next);
  const bool was_unsure = std::exchange(unsure_, true);
  absl::Status status = no_memory_;
  try {
    status = directory().Write(kManifestName, parts, true);
    if (!status.ok()) {
      // If the new manifest is already in place, only the sync failed.
      const absl::StatusOr<std::vector<uint8_t>> there =
          directory().Read(kManifestName, kMaxManifestBytes);
      if (!was_unsure && there.ok() && *there == before) unsure_ = false;
    }
  } catch (const std::bad_alloc&) {
    // The new manifest may be in place or not.
  }
  if (!status.ok()) return status;
  unsure_ = false;
  manifest_ = std::move(next);
  RemoveAllBut(named);
  return absl::OkStatus();
}

void TrackerFiles::RemoveAll() noexcept {
  directory().Remove(kManifestName);
  RemoveAllBut({});
}

// Files that can't be removed are retried after the next commit.
void TrackerFiles::RemoveAllBut(const std::set<std::string>& named) noexcept {
  std::erase_if(present_, [&](const std::string& name) {
    return !named.contains(name) && directory().Remove(name.c_str());
  });
}

}  // namespace cbt

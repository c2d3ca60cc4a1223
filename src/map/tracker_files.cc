#include "map/tracker_files.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cbt/change_map_file.h"
#include "core/absl_view.h"
#include "map/descriptor.h"
#include "map/file_io.h"

namespace cbt {
namespace {

constexpr char kPrefix[] = "epoch-";
constexpr char kMapExtension[] = ".cbm";
constexpr char kRoughExtension[] = "-rough.cbm";
constexpr char kLogExtension[] = ".log";
constexpr char kGoneExtension[] = ".gone";

std::string LogName(uint64_t epoch, uint64_t generation) {
  return absl::StrCat(kPrefix, epoch, "-", generation, kLogExtension);
}

}  // namespace

struct TrackerFiles::Name {
  std::string name;
  uint64_t epoch = 0;
  uint64_t generation = 0;
  bool log = false;
  bool rough = false;
  bool gone = false;
};

absl::StatusOr<std::unique_ptr<TrackerFiles>> TrackerFiles::Open(const std::string& directory) {
  if (absl::Status status = MakeFolder(directory, true); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<FolderLock>> lock = FolderLock::Take(directory);
  if (!lock.ok()) return lock.status();
  return std::unique_ptr<TrackerFiles>(new TrackerFiles(directory, *std::move(lock)));
}

TrackerFiles::TrackerFiles(std::string directory, std::unique_ptr<FolderLock> lock)
    : directory_(std::move(directory)), lock_(std::move(lock)) {}

TrackerFiles::~TrackerFiles() = default;

std::string TrackerFiles::Path(const std::string& name) const {
  return absl::StrCat(directory_, "/", name);
}

absl::StatusOr<std::vector<TrackerFiles::Name>> TrackerFiles::List() const {
  const OwnedFolder folder(::opendir(directory_.c_str()));
  if (folder == nullptr) return FileError(directory_, errno);
  std::vector<Name> names;
  for (;;) {
    errno = 0;
    const dirent* const entry =
        ::readdir(folder.get());  // NOLINT(concurrency-mt-unsafe): our own stream
    if (entry == nullptr) break;
    Name name;
    name.name = entry->d_name;
    absl::string_view rest = name.name;
    if (!absl::ConsumePrefix(&rest, kPrefix)) continue;
    if (absl::ConsumeSuffix(&rest, kGoneExtension)) {
      name.gone = absl::SimpleAtoi(rest, &name.epoch);
      if (name.gone) names.push_back(std::move(name));
      continue;
    }
    name.rough = absl::ConsumeSuffix(&rest, kRoughExtension);
    name.log = !name.rough && absl::ConsumeSuffix(&rest, kLogExtension);
    if (!name.rough && !name.log && !absl::ConsumeSuffix(&rest, kMapExtension)) continue;
    const std::vector<absl::string_view> numbers = absl::StrSplit(rest, '-');
    if (numbers.size() == 2 && absl::SimpleAtoi(numbers[0], &name.epoch) &&
        absl::SimpleAtoi(numbers[1], &name.generation)) {
      names.push_back(std::move(name));
    }
  }
  if (errno != 0) return FileError(directory_, errno);
  return names;
}

absl::StatusOr<bool> TrackerFiles::HasEpochs() const {
  absl::StatusOr<std::vector<Name>> names = List();
  if (!names.ok()) return names.status();
  return !names->empty();
}

absl::StatusOr<EpochFiles> TrackerFiles::ReadEpoch(uint64_t epoch, const std::vector<Name>& names,
                                                   const std::string& volume,
                                                   const VolumeGeometry& geometry) const {
  const auto lost = [&](const std::string& why) {
    return absl::DataLossError(absl::StrCat(directory_, ": epoch ", epoch, ": ", why));
  };
  const auto foreign = [&](const std::string& file) {
    return absl::FailedPreconditionError(
        absl::StrCat(Path(file), ": is of another volume, or of one of another size"));
  };
  EpochFiles files;
  files.epoch = epoch;
  const Name* checkpoint = nullptr;
  std::set<uint64_t> logs;
  for (const Name& name : names) {
    if (name.epoch != epoch || name.gone) continue;
    files.generation = std::max(files.generation, name.generation);
    if (name.log) {
      logs.insert(name.generation);
    } else if (checkpoint == nullptr || name.generation > checkpoint->generation) {
      checkpoint = &name;
    }
  }
  uint64_t from = 0;
  absl::StatusOr<ChangeMap> known = ChangeMap::Empty(geometry);
  if (checkpoint != nullptr) {
    from = checkpoint->generation;
    known = ReadChangeMap(Path(checkpoint->name));
    if (known.ok() && ((*known)->geometry() != geometry || known->identity().volume != volume)) {
      return foreign(checkpoint->name);
    }
    if (known.ok()) files.base = known->identity().base;
    files.exact = !checkpoint->rough;
    // Closed in peace: there is no log to the map yet, and the next one must be it. Was it left
    // out, it would be missing to whoever reads this after a crash.
    if (from == files.generation && from > 0 && !logs.contains(from)) --files.generation;
  }
  if (!known.ok()) return known.status();
  logs.erase(logs.begin(), logs.lower_bound(from));
  if (checkpoint == nullptr && logs.empty()) return lost("neither a map nor a log");

  absl::StatusOr<ChangeMapBuilder> builder = ChangeMapBuilder::Create(geometry);
  if (!builder.ok()) return builder.status();
  for (const uint64_t generation : logs) {
    if (generation != from++) return lost("a log is missing");
    const std::string name = LogName(epoch, generation);
    absl::StatusOr<RegionLog::Contents> log = RegionLog::Read(Path(name));
    if (!log.ok()) return log.status();
    const RegionLogHeader& header = log->header;
    if (header.geometry != geometry || header.volume != volume) return foreign(name);
    if (header.epoch != epoch || header.generation != generation) {
      return lost(absl::StrCat(name, " is another log"));
    }
    files.base = header.base;
    // Of a log that can't be trusted nothing is known: everything may be dirty.
    if (!log->sound) {
      if (absl::Status status = builder->Add({0, geometry.capacity}); !status.ok()) return status;
    }
    for (const uint64_t region : log->regions) {
      const uint64_t begin = region * header.region_bytes;
      const uint64_t length = std::min(header.region_bytes, geometry.capacity - begin);
      if (absl::Status status = builder->Add({begin, length}); !status.ok()) return status;
    }
    files.exact &= log->sound && log->regions.empty();
  }
  absl::StatusOr<ChangeMap> regions = builder->Build();
  if (!regions.ok()) return regions.status();
  files.map = *std::move(known);
  if (absl::Status status = files.map.UniteWith(*regions); !status.ok()) return status;
  return files;
}

absl::StatusOr<std::vector<EpochFiles>> TrackerFiles::Read(const std::string& volume,
                                                           const VolumeGeometry& geometry,
                                                           uint64_t& next) const {
  // A process that was killed may have left names that are not on the disk yet. What is made next
  // builds on them: they must not be lost while it stays.
  if (absl::Status status = SyncFolder(directory_); !status.ok()) return status;
  absl::StatusOr<std::vector<Name>> names = List();
  if (!names.ok()) return names.status();
  std::set<uint64_t> numbers;
  for (const Name& name : *names) numbers.insert(name.epoch);
  next = numbers.empty() ? 0 : *numbers.rbegin() + 1;
  for (const Name& name : *names) {
    if (!name.gone) continue;
    if (absl::Status status = Forget(name.epoch); !status.ok()) return status;
    numbers.erase(name.epoch);
  }
  if (numbers.empty()) {
    return absl::NotFoundError(absl::StrCat(directory_, ": there is no tracker"));
  }
  if (numbers.size() > 2) {
    return absl::DataLossError(absl::StrCat(directory_, ": more epochs than can be open"));
  }
  std::vector<EpochFiles> epochs;
  for (const uint64_t number : numbers) {
    absl::StatusOr<EpochFiles> epoch = ReadEpoch(number, *names, volume, geometry);
    if (!epoch.ok()) return epoch.status();
    epochs.push_back(*std::move(epoch));
  }
  return epochs;
}

absl::StatusOr<std::shared_ptr<RegionLog>> TrackerFiles::CreateLog(
    const RegionLogHeader& header) const {
  return RegionLog::Create(Path(LogName(header.epoch, header.generation)), header);
}

absl::Status TrackerFiles::RemoveAll(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (::unlink(Path(name).c_str()) != 0 && errno != ENOENT) return FileError(Path(name), errno);
  }
  return names.empty() ? absl::OkStatus() : SyncFolder(directory_);
}

absl::Status TrackerFiles::WriteMap(const ChangeMap& map, uint64_t epoch, uint64_t generation,
                                    bool exact) const {
  const std::string name =
      absl::StrCat(kPrefix, epoch, "-", generation, exact ? kMapExtension : kRoughExtension);
  if (absl::StatusOr<ChangeMapHeader> header = WriteChangeMap(map, Path(name)); !header.ok()) {
    return header.status();
  }
  absl::StatusOr<std::vector<Name>> names = List();
  if (!names.ok()) return names.status();
  std::vector<std::string> superfluous;
  for (const Name& each : *names) {
    // What says that the epoch is gone stays, see CancelEpoch().
    if (each.epoch != epoch || each.gone) continue;
    const bool same_map = each.generation == generation && !each.log && each.name != name;
    if (each.generation < generation || same_map) superfluous.push_back(each.name);
  }
  return RemoveAll(superfluous);
}

absl::Status TrackerFiles::Forget(uint64_t epoch) const {
  absl::StatusOr<std::vector<Name>> names = List();
  if (!names.ok()) return names.status();
  std::vector<std::string> files;
  for (const Name& each : *names) {
    if (each.epoch == epoch && !each.gone) files.push_back(each.name);
  }
  // Said first and taken back last, so that what is left after a crash can't be mistaken for a
  // whole epoch, nor for a damaged one.
  const std::string gone = absl::StrCat(kPrefix, epoch, kGoneExtension);
  if (absl::Status status = WriteFileAtomically(Path(gone), {}, true); !status.ok()) return status;
  if (RemoveAll(files).ok()) RemoveAll({gone}).IgnoreError();
  return absl::OkStatus();
}

}  // namespace cbt

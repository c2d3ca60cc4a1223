#include "source/volume_maps.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/absl_view.h"
#include "map/file_io.h"
#include "map/map_cursor.h"
#include "source/beneath.h"
#include "source/folder.h"

namespace cbt {
namespace {

// Maps up to this size are checked as a whole before the stream begins, which takes milliseconds;
// larger ones as they are read.
constexpr uint64_t kCheckedAtOnce = uint64_t{16} << 20;

}  // namespace

VolumeMaps VolumeMaps::Read(int root, const std::string& volume) {
  VolumeMaps maps(volume);
  const int folder =
      OpenBeneath(root, volume.empty() ? "." : volume, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) {
    if (!IsAbsent(errno)) maps.NoteDamage(FileError("open the volume", errno));
    return maps;
  }
  const absl::StatusOr<std::vector<std::string>> names = NamesIn(folder);
  if (!names.ok()) {
    maps.NoteDamage(names.status());
    return maps;
  }
  for (const std::string& name : *names) {
    const std::string path = volume.empty() ? name : absl::StrCat(volume, "/", name);
    if (absl::EndsWith(name, AbslView(kMapExtension))) {
      const int file = OpenBeneath(root, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
      if (file >= 0) {
        maps.AddMap(file, name);
      } else if (MayBeThere(errno)) {
        maps.NoteDamage(FileError(name, errno));
      }
    } else if (absl::EndsWith(name, AbslView(kChainExtension))) {
      const int chain = OpenBeneath(root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      if (chain >= 0) {
        maps.AddChain(chain, name);
      } else if (MayBeThere(errno)) {
        maps.NoteDamage(FileError(name, errno));
      }
    }
  }
  return maps;
}

void VolumeMaps::NoteDamage(const absl::Status& status) {
  if (damage_.ok()) damage_ = AsDamage(status);
}

void VolumeMaps::AddMap(int descriptor, const std::string& file) {
  absl::StatusOr<std::shared_ptr<const MappedFile>> bytes =
      MappedFile::FromDescriptor(descriptor, file);
  if (!bytes.ok()) return NoteDamage(bytes.status());
  absl::StatusOr<MapFileParts> parts = ParseMapFile((*bytes)->bytes(), file);
  if (!parts.ok()) return NoteDamage(parts.status());
  if (IsOurs(parts->header.identity.volume)) {
    maps_.push_back({file, *std::move(bytes), std::move(parts->header)});
  }
}

void VolumeMaps::AddChain(int descriptor, const std::string& file) {
  // By way of the descriptor, because the path could lead out of the root by now.
  std::shared_ptr<const int> directory(new int(descriptor), [](const int* number) {
    ::close(*number);
    delete number;
  });
  absl::StatusOr<std::unique_ptr<ChangeChain>> chain = ChangeChain::Open(
      absl::StrCat("/proc/self/fd/", descriptor), ChangeChain::Access::kRead, {.name = file});
  if (absl::IsNotFound(chain.status())) return;
  if (!chain.ok()) return NoteDamage(chain.status());
  if (IsOurs((*chain)->volume())) chains_.push_back({std::move(directory), *std::move(chain)});
}

bool VolumeMaps::IsOurs(const std::string& volume) const {
  // The root has no name.
  if (volume_.empty() || volume.empty() || volume == volume_) return true;
  return absl::EndsWith(volume_, absl::StrCat("/", volume));
}

std::string VolumeMaps::IdOf(const std::string& name) const {
  return volume_.empty() ? name : absl::StrCat(volume_, "/", name);
}

bool VolumeMaps::Names(const std::string& said, const std::string& name) const {
  return said == name || said == IdOf(name);
}

bool VolumeMaps::Knows(const std::string& name) const {
  for (const Map& map : maps_) {
    const ChangeMapIdentity& identity = map.header.identity;
    if (Names(identity.base, name) || Names(identity.target, name)) return true;
  }
  for (const auto& [directory, chain] : chains_) {
    if (chain->Contains(name) || chain->Contains(IdOf(name))) return true;
  }
  return false;
}

// An empty base stands for none.
absl::StatusOr<std::unique_ptr<ExtentCursor>> VolumeMaps::FromMaps(
    const std::string& base, const std::string& target) const {
  const Map* found = nullptr;
  for (const Map& map : maps_) {
    const ChangeMapIdentity& identity = map.header.identity;
    const bool same_base = base.empty() ? identity.base.empty() : Names(identity.base, base);
    if (!same_base || !Names(identity.target, target)) continue;
    // Two that say the same are one.
    if (found != nullptr && found->header.checksum != map.header.checksum) {
      return absl::FailedPreconditionError(absl::StrCat(
          "maps ", found->file, " and ", map.file, " are about the same snapshots and differ"));
    }
    found = &map;
  }
  if (found == nullptr) return nullptr;
  absl::StatusOr<LazyMap> map = OpenLazily(found->bytes->bytes(), found->bytes, found->file);
  if (!map.ok()) return absl::FailedPreconditionError(map.status().message());
  if (map->header.payload_bytes <= kCheckedAtOnce) {
    for (size_t i = 0; i < map->index->size(); ++i) {
      if (absl::StatusOr<Container> container = map->index->Load(i); !container.ok()) {
        return absl::FailedPreconditionError(container.status().message());
      }
    }
  }
  return MakeContainerCursor({map->index}, map->header.geometry, {map->storage});
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> VolumeMaps::Delta(const std::string& base,
                                                                const std::string& target) const {
  absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor = FromMaps(base, target);
  if (!cursor.ok() || *cursor != nullptr) return cursor;
  for (const Chain& each : chains_) {
    const ChangeChain* const chain = each.chain.get();
    const auto said = [&](const std::string& name) {
      return chain->Contains(name) ? name : IdOf(name);
    };
    if (!chain->Contains(said(base)) || !chain->Contains(said(target))) continue;
    cursor = chain->Delta(said(base), said(target));
    if (absl::IsDataLoss(cursor.status()) || absl::IsUnimplemented(cursor.status())) {
      return absl::FailedPreconditionError(cursor.status().message());
    }
    return cursor;
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> VolumeMaps::Allocated(
    const std::string& target) const {
  return FromMaps({}, target);
}

}  // namespace cbt

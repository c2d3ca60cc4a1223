#include "source/directory/open_maps.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "source/input/file_version.h"

namespace cbt {

absl::StatusOr<LazyMap> OpenMaps::Open(OwnedDescriptor descriptor, const std::string& path,
                                       const std::string& name, uint64_t checksum) {
  const DataVersion state = FileVersion(descriptor.number());
  const std::string version = state.of_place ? "" : state.text;
  const std::string key = absl::StrCat(version, path);
  const Clock::time_point now = Clock::now();
  if (!version.empty()) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found != entries_.end() && now - found->second.opened < shared_for_) {
      LazyMap map{found->second.header, found->second.index.lock(), found->second.storage.lock()};
      // A file written twice within a tick of its clock has the same version.
      if (map.index != nullptr && map.storage != nullptr && map.header.checksum == checksum) {
        return map;
      }
    }
  }
  absl::StatusOr<std::shared_ptr<const MappedFile>> file =
      MappedFile::FromDescriptor(std::move(descriptor), name, MappedFile::Watched::kYes);
  if (!file.ok()) return file.status();
  const std::span<const uint8_t> bytes = (*file)->bytes();
  absl::StatusOr<LazyMap> map = OpenLazily(bytes, *std::move(file), name);
  if (!map.ok() || version.empty()) return map;
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const auto& entry) { return entry.second.storage.expired(); });
  entries_.insert_or_assign(key, Entry{map->header, map->index, map->storage, now});
  return map;
}

size_t OpenMaps::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) {
    return !entry.second.storage.expired();
  }));
}

}  // namespace cbt

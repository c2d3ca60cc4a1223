// Access to the private parts of the public types, for the files of this directory.
#ifndef CBT_MAP_MAP_ACCESS_H_
#define CBT_MAP_MAP_ACCESS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "map/map_limit.h"
#include "map/portable_index.h"

namespace cbt {

inline uint64_t Blocks(const VolumeGeometry& geometry) noexcept {
  return BlockCount(geometry.capacity, geometry.granularity);
}

class ChangeMapAccess {
 public:
  static const std::shared_ptr<const PortableIndex>& Index(const ChangeMapView& map) {
    return map.index_;
  }

  // A map over `bytes`, which `owner` keeps alive, after full validation.
  static absl::StatusOr<ChangeMap> FromBytes(std::shared_ptr<const void> owner,
                                             std::span<const uint8_t> bytes,
                                             const VolumeGeometry& geometry);

  // A map from the bytes of one of our writers. Validates them too: INTERNAL if that fails.
  static absl::StatusOr<ChangeMap> FromWriter(absl::StatusOr<std::vector<uint8_t>> bytes,
                                              const VolumeGeometry& geometry);

  // What keeps the bytes of `map`.
  static const std::shared_ptr<const void>& Owner(const ChangeMap& map) {
    return map.view_.index_->owner();
  }
};

// The union of maps of one granularity, as sets of blocks: a smaller map has no blocks past its
// capacity, and blocks past the geometry's capacity are dropped.
absl::StatusOr<ChangeMap> UniteBlocks(std::span<const ChangeMapView> maps,
                                      const VolumeGeometry& geometry);
// The same for indexes, whose containers are checked as they are read. RESOURCE_EXHAUSTED always
// means that the union would exceed `most` bytes.
absl::StatusOr<ChangeMap> UniteBlocks(std::vector<std::shared_ptr<const PortableIndex>> maps,
                                      const VolumeGeometry& geometry,
                                      uint64_t most = MapLimit::Current());

}  // namespace cbt

#endif  // CBT_MAP_MAP_ACCESS_H_

// How the files of this folder reach into the public types.
#ifndef CBT_MAP_MAP_ACCESS_H_
#define CBT_MAP_MAP_ACCESS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "map/portable_index.h"

namespace cbt {

class ChangeMapAccess {
 public:
  static const std::shared_ptr<const PortableIndex>& Index(const ChangeMapView& map) {
    return map.index_;
  }

  // A map over `bytes`, which `storage` keeps alive, after validation in full.
  static absl::StatusOr<ChangeMap> FromBytes(std::shared_ptr<const void> storage,
                                             std::span<const uint8_t> bytes,
                                             const VolumeGeometry& geometry);

  // A map of what a writer of ours gave. It is validated all the same: INTERNAL when that fails.
  static absl::StatusOr<ChangeMap> FromWriter(absl::StatusOr<std::vector<uint8_t>> bytes,
                                              const VolumeGeometry& geometry);

  static const std::shared_ptr<const void>& Storage(const ChangeMap& map) { return map.storage_; }
};

// The union of maps of one granularity, as sets of blocks: nothing is assumed about what a smaller
// map can't speak of, and blocks past the capacity are left out.
absl::StatusOr<ChangeMap> UniteBlocks(std::span<const ChangeMapView> maps,
                                      const VolumeGeometry& geometry);
// The same for indexes, whose containers are checked as they are read. RESOURCE_EXHAUSTED means
// nothing else than a union of more than `most` bytes.
absl::StatusOr<ChangeMap> UniteBlocks(std::vector<std::shared_ptr<const PortableIndex>> maps,
                                      const VolumeGeometry& geometry, uint64_t most = kMaxMapBytes);

}  // namespace cbt

#endif  // CBT_MAP_MAP_ACCESS_H_

// Stands in for your storage: two snapshots of one volume. Replace it with calls to your storage's
// management API.
#ifndef EXAMPLES_PLUGIN_STORAGE_H_
#define EXAMPLES_PLUGIN_STORAGE_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/extent.h"
#include "cbt/units.h"

namespace storage {

using Extents = std::vector<cbt::Extent>;  // {offset, length} in bytes, ascending
inline constexpr uint64_t kCapacity = cbt::kGiB;
inline constexpr uint64_t kBlock = 4 * cbt::kKiB;

inline const std::map<std::string, Extents, std::less<>> kAllocated = {
    {"monday", {{0, 8 * kBlock}}},
    {"tuesday", {{0, 8 * kBlock}, {100 * kBlock, kBlock}}},
};
inline const Extents kMondayToTuesday = {{2 * kBlock, kBlock}, {100 * kBlock, kBlock}};

inline absl::StatusOr<Extents> Allocated(std::string_view snapshot) {
  const auto found = kAllocated.find(snapshot);
  if (found == kAllocated.end()) return absl::NotFoundError("no such snapshot");
  return found->second;
}

inline absl::StatusOr<Extents> Changed(std::string_view base, std::string_view target) {
  if (!kAllocated.contains(base) || !kAllocated.contains(target)) {
    return absl::NotFoundError("no such snapshot");
  }
  if (base == target) return Extents{};
  if (base == "monday" && target == "tuesday") return kMondayToTuesday;
  return absl::InvalidArgumentError("the base is newer than the target");
}

}  // namespace storage

#endif  // EXAMPLES_PLUGIN_STORAGE_H_

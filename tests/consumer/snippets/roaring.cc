// Snippets that need cbt::roaring.

// [add]
#include "cbt/bridge/roaring.h"

#include "cbt/units.h"

using namespace roaring;  // empty before CRoaring 1

absl::StatusOr<cbt::ChangeMap> Add(const cbt::ChangeMap& before, const roaring_bitmap_t& written) {
  auto map = cbt::FromRoaring(written, {.capacity = 64 * cbt::kGiB, .granularity = 4 * cbt::kKiB});
  if (!map.ok()) return map.status();  // a block past the capacity, or a damaged bitmap
  return cbt::Union(before, *map);     // cbt::ToRoaring<roaring_bitmap_t>(...) is the way back
}
// [/add]

using namespace cbt::units;

// [both-ways]
absl::Status BothWays(const Roaring64Map& bitmap) {
  auto map = cbt::FromRoaring(bitmap, {.capacity = 64_GiB, .granularity = 4_KiB});
  if (!map.ok()) return map.status();
  return cbt::ToRoaring<Roaring64Map>(*map).status();
}
// [/both-ways]

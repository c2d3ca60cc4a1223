// Untrusted portable roaring bytes: accepted as a map exactly if an independent strict decoder
// accepts them, with the same blocks.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cbt/change_map.h"
#include "cbt/units.h"
#include "fuzz/support/blocks.h"
#include "fuzz/support/check.h"
#include "tests/reference/portable_roaring.h"

namespace {

constexpr cbt::VolumeGeometry kVolume = {cbt::kPiB, 512};

std::vector<uint64_t> BlocksOf(cbt::ExtentCursor& cursor) {
  return cbt::fuzz::BlocksOf(cursor, kVolume.granularity);
}

void Portable(const std::vector<uint8_t>& bytes) {
  const auto want = cbt::reference::PortableRoaring::Decode(bytes);
  const auto got = cbt::ChangeMapView::Create(bytes, kVolume);
  const bool fits = want.has_value() && (want->empty() || want->back() < kVolume.capacity / 512);
  CBT_FUZZ_CHECK(got.ok() == fits);
  if (!fits) return;
  CBT_FUZZ_CHECK(BlocksOf(*cbt::MakeBorrowedChangeMapCursor(*got)) == *want);
  CBT_FUZZ_CHECK(got->cardinality() == want->size());
  cbt::ChangeMap map = *cbt::ChangeMap::FromPortable64(bytes, kVolume);
  CBT_FUZZ_CHECK(map.Optimize().ok());
  // A group that is marked as having runs but has none omits the offsets; it is not canonical.
  uint64_t groups = 0;
  std::memcpy(&groups, bytes.data(), sizeof groups);
  CBT_FUZZ_CHECK(map->portable().size() <= bytes.size() + 15 * groups);
  CBT_FUZZ_CHECK(map.view() == *got);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Portable({data, data + size});
  return 0;
}

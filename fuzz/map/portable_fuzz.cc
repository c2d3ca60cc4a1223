// Portable roaring bytes of anybody: taken as a map exactly when a decoder that believes nothing
// takes them, with the same blocks in it.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cbt/change_map.h"
#include "fuzz/support/check.h"
#include "reference/portable_roaring.h"

namespace {

constexpr cbt::VolumeGeometry kVolume = {uint64_t{1} << 50, 512};

std::vector<uint64_t> BlocksOf(cbt::ExtentCursor& cursor) {
  std::vector<uint64_t> blocks;
  const absl::Status status = cbt::ForEachBatch(cursor, [&](const cbt::ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      for (uint64_t b = batch[i].offset / 512; b * 512 < batch[i].end(); ++b) blocks.push_back(b);
    }
    return absl::OkStatus();
  });
  CBT_FUZZ_CHECK(status.ok());
  return blocks;
}

void Portable(const std::vector<uint8_t>& bytes) {
  const auto want = cbt::reference::PortableRoaring::Decode(bytes);
  const auto got = cbt::ChangeMapView::Create(bytes, kVolume);
  const bool fits = want.has_value() && (want->empty() || want->back() < kVolume.capacity / 512);
  CBT_FUZZ_CHECK(got.ok() == fits);
  if (!fits) return;
  CBT_FUZZ_CHECK(BlocksOf(*cbt::MakeChangeMapCursor(*got)) == *want);
  CBT_FUZZ_CHECK(got->cardinality() == want->size());
  cbt::ChangeMap map = *cbt::ChangeMap::FromPortable64(bytes, kVolume);
  CBT_FUZZ_CHECK(map.Optimize().ok());
  // Offsets are what a group does without that announces runs and holds none; it is not canonical.
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

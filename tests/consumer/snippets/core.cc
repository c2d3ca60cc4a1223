// Snippets that need cbt::core.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cbt/bitmap.h"
#include "cbt/units.h"

// [change-maps]
#include "cbt/change_chain.h"
#include "cbt/change_map_file.h"

absl::StatusOr<std::unique_ptr<cbt::ExtentCursor>> Spring(cbt::ExtentCursor& changes,
                                                          const cbt::ChangeMap& before) {
  auto map = cbt::ChangeMap::FromCursor(changes);  // or from bitmaps, extents, writes in any order
  if (!map.ok()) return map.status();
  auto both = cbt::Union(before, *map);  // and intersection, difference, symmetric difference
  if (!both.ok()) return both.status();
  auto written = cbt::WriteChangeMap(*both, "both.cbm");  // replaces the file as a whole
  if (!written.ok()) return written.status();
  auto chain = cbt::ChangeChain::Open("history.chain", cbt::ChangeChain::Access::kRead);
  if (!chain.ok()) return chain.status();
  return (*chain)->Delta("2026-03-01", "2026-06-01");  // O(log n) maps, united as it runs
}
// [/change-maps]

std::vector<uint8_t> Fetch(const std::string& snapshot);

absl::StatusOr<std::unique_ptr<cbt::ExtentCursor>> Bitmap(const std::string& snapshot,
                                                          const cbt::VolumeGeometry& geometry) {
  // [bitmap]
  std::vector<uint8_t> bits = Fetch(snapshot);
  auto bitmap = cbt::Bitmap::Create(std::move(bits), /*first_bit=*/0, BlockCount(geometry));
  if (!bitmap.ok()) return bitmap.status();  // too few bits
  return cbt::MakeBitmapCursor(*bitmap, geometry);
  // [/bitmap]
}

void Use(cbt::Extent extent);

absl::Status UseAll(cbt::ExtentCursor& cursor) {
  // [cursor]
  cbt::ExtentBatch batch;
  for (;;) {
    absl::StatusOr<cbt::Step> step = cursor.Next(batch);
    if (!step.ok()) return step.status();
    for (size_t i = 0; i < batch.size(); ++i) Use(batch[i]);
    if (*step == cbt::Step::kComplete) break;
  }
  // [/cursor]
  return absl::OkStatus();
}

// [units]
using namespace cbt::units;
const cbt::VolumeGeometry volume = {.capacity = 64_GiB, .granularity = 4_KiB};
// [/units]

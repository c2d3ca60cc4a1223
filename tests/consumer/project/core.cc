// A plugin with a bitmap, on cbt::core alone: prints the changed extents.
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "cbt/bitmap.h"
#include "cbt/transform.h"

// Returns after the function that fetched the bits.
absl::StatusOr<std::unique_ptr<cbt::ExtentCursor>> Open() {
  std::vector<uint8_t> bits = {0x03, 0x00, 0xb0};
  auto bitmap = cbt::Bitmap::Create(std::move(bits), 0, 24);
  if (!bitmap.ok()) return bitmap.status();
  return cbt::MakeBitmapCursor(*bitmap, {.capacity = 24 * 4096, .granularity = 4096});
}

int main() {
  auto cursor = Open();
  if (cursor.ok()) cursor = cbt::Coalesce(*std::move(cursor), 4096);
  if (!cursor.ok()) return 1;
  const auto print = [](const cbt::ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      std::printf("%" PRIu64 " %" PRIu64 "\n", batch[i].offset, batch[i].length);
    }
    return absl::OkStatus();
  };
  return cbt::ForEachBatch(**cursor, print).ok() ? 0 : 1;
}

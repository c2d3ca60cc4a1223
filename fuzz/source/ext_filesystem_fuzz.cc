// Arbitrary bytes as a file system image: rejected, or an answer whose extents are in order,
// include the superblock and everything after the file system, and are the same from any offset on.
// In the boot block, the first byte says how many times 64 KiB of zeros follow the input, the
// fourth whether other signatures are looked for, which takes long.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cbt/cursor.h"
#include "cbt/source/ext_filesystem.h"
#include "fuzz/support/check.h"

namespace {

std::vector<cbt::Extent> Rest(cbt::ExtentCursor& cursor, bool& complete) {
  std::vector<cbt::Extent> extents;
  const absl::Status status = cbt::ForEachBatch(cursor, [&](const cbt::ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) extents.push_back(batch[i]);
    return absl::OkStatus();
  });
  complete = status.ok();
  return extents;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static_cast<void>(cbt::LooksLikeExt({data, size}));
  if (size < 2048) return 0;
  const int descriptor = memfd_create("image", MFD_CLOEXEC);
  CBT_FUZZ_CHECK(descriptor >= 0);
  const uint64_t capacity = size + (uint64_t{data[0]} << 16);
  CBT_FUZZ_CHECK(ftruncate(descriptor, static_cast<off_t>(capacity)) == 0);
  CBT_FUZZ_CHECK(pwrite(descriptor, data, size, 0) == static_cast<ssize_t>(size));
  auto image = cbt::Image::FromDescriptor(descriptor, "image");
  CBT_FUZZ_CHECK(image.ok());
  auto cursor =
      cbt::MakeExtAllocationCursor(*image, {.ignore_other_signatures = data[3] % 16 != 0});
  if (!cursor.ok()) return 0;
  bool complete = false;
  const std::vector<cbt::Extent> all = Rest(**cursor, complete);
  if (!complete) return 0;
  uint64_t end = 0;
  bool superblock = false;
  for (const cbt::Extent& extent : all) {
    CBT_FUZZ_CHECK(extent.length > 0 && (end == 0 ? extent.offset == 0 : extent.offset > end));
    end = extent.end();
    superblock = superblock || (extent.offset <= 1024 && end >= 2048);
  }
  CBT_FUZZ_CHECK(superblock && end <= capacity);

  const uint64_t granularity = (*cursor)->granularity();
  const uint64_t offset =
      (uint64_t{data[1]} << 16 | uint64_t{data[2]} << 8) % capacity / granularity * granularity;
  CBT_FUZZ_CHECK((*cursor)->Seek(offset).ok());
  const std::vector<cbt::Extent> rest = Rest(**cursor, complete);
  CBT_FUZZ_CHECK(complete);
  size_t i = 0;
  while (i < all.size() && all[i].end() <= offset) ++i;
  CBT_FUZZ_CHECK(all.size() - i == rest.size());
  for (const cbt::Extent& extent : rest) {
    const uint64_t begin = all[i].offset < offset ? offset : all[i].offset;
    CBT_FUZZ_CHECK(extent.offset == begin && extent.end() == all[i].end());
    ++i;
  }
  return 0;
}

// Untrusted bytes through every importer of lists: an error, or a map within its volume that is the
// same however the bytes arrive; no truncation may go unnoticed. The first byte chooses the
// importer, the next three its options, two more where the list is cut.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "cbt/change_map.h"
#include "cbt/source/dense_bitmap.h"
#include "cbt/source/lists.h"
#include "cbt/source/open.h"
#include "cbt/units.h"
#include "fuzz/support/check.h"
#include "tests/support/dribble.h"

namespace {

using cbt::ByteStream;
using cbt::ChangeMap;
using cbt::ImportOptions;
using Importer = std::function<absl::StatusOr<ChangeMap>(ByteStream&, const ImportOptions&)>;

absl::StatusOr<ChangeMap> ReadDense(ByteStream& stream, const ImportOptions& options) {
  const uint64_t capacity = std::min<uint64_t>(options.capacity.value_or(4096), cbt::kGiB);
  cbt::DenseBitmapLayout layout = {
      .granularity = options.granularity, .header_bytes = capacity % 7, .first_bit = capacity % 13};
  layout.format.reversed_word_bytes = static_cast<uint8_t>(1u << (capacity >> 4) % 4);
  layout.format.inverted = capacity % 2 == 0;
  auto cursor = cbt::ReadDenseBitmap(stream, options.base_capacity.has_value(), layout, capacity);
  if (!cursor.ok()) return cursor.status();
  return ChangeMap::FromCursor(**cursor);
}

// For maps at the granularity that the input asks for.
constexpr uint64_t kMaxContainers = uint64_t{1} << 17;

const Importer kImporters[] = {
    [](ByteStream& stream, const ImportOptions& options) {
      return cbt::ReadRbdDiff(stream, {.import = options});
    },
    [](ByteStream& stream, const ImportOptions& options) {
      return cbt::ReadRbdDiff(stream, {.import = options, .base = "s1", .target = "s2"});
    },
    cbt::ReadRbdDiffJson,
    cbt::ReadQemuMap,
    cbt::ReadThinDelta,
    [](ByteStream& stream, const ImportOptions& options) {
      return cbt::ReadThinDump(stream, {.import = options});
    },
    [](ByteStream& stream, const ImportOptions& options) {
      return cbt::ReadEraInvalidate(
          stream, {.import = options, .block_size = 65536, .empty_is_unwritten = true});
    },
    [](ByteStream& stream, const ImportOptions& options) {
      return cbt::ReadEraDump(stream, {.import = options, .since_era = 3});
    },
    cbt::ReadEbsPages,
    cbt::ReadVmwareAreas,
    ReadDense,
    cbt::ReadNdjsonAnswer,
    cbt::ReadJsonAnswer,
    cbt::ReadCsvAnswer,
    [](ByteStream& stream, const ImportOptions&) { return cbt::ReadPartclone(stream); },
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 6) return 0;
  const uint8_t where[] = {data[4], data[5]};
  const Importer& importer = kImporters[data[0] % std::size(kImporters)];
  ImportOptions options;
  if (data[1] % 4 != 0) {
    options.purpose =
        data[1] % 2 == 0 ? cbt::SourcePurpose::kAllocated : cbt::SourcePurpose::kDelta;
  }
  if (data[2] % 8 != 0) options.capacity = (uint64_t{1} << data[2] % 63) + data[2] * 512u;
  if (data[3] % 4 == 0) options.base_capacity = uint64_t{1} << data[3] % 63;
  options.granularity = uint64_t{512} << data[3] % 12;
  data += 6;
  size -= 6;
  static_cast<void>(cbt::DetectSourceFormat({data, size}));
  static_cast<void>(cbt::ParseSourceSpec({reinterpret_cast<const char*>(data), size}));
  // A few bytes may report petabytes of changes: such maps are allowed, but take seconds each.
  ImportOptions coarse = options;
  coarse.granularity = uint64_t{1} << 26;
  const auto first = cbt::MakeBorrowedMemoryStream({data, size}, "input");
  if (const absl::StatusOr<ChangeMap> rough = importer(*first, coarse); rough.ok()) {
    const uint64_t container = options.granularity << 16;
    if ((*rough)->changed_bytes() / container > kMaxContainers) options = coarse;
  }
  const auto whole = cbt::MakeBorrowedMemoryStream({data, size}, "input");
  const absl::StatusOr<ChangeMap> map = importer(*whole, options);
  cbt::test::Dribble dribble({reinterpret_cast<const char*>(data), size}, 3, "input");
  const absl::StatusOr<ChangeMap> again = importer(dribble, options);
  CBT_FUZZ_CHECK(map.ok() == again.ok());
  if (!map.ok()) {
    CBT_FUZZ_CHECK(!map.status().message().empty());
    return 0;
  }
  CBT_FUZZ_CHECK(map->view() == again->view());
  CBT_FUZZ_CHECK((*map)->capacity() <= cbt::kMaxCapacity);
  CBT_FUZZ_CHECK((*map)->changed_bytes() <= (*map)->capacity());
  // Truncation is detected; if a shorter list is accepted, it gives the same map.
  if (size > 0) {
    const size_t left = (size_t{where[0]} << 8 | where[1]) % size;
    const auto early = cbt::MakeBorrowedMemoryStream({data, left}, "input");
    const absl::StatusOr<ChangeMap> less = importer(*early, options);
    if (less.ok()) CBT_FUZZ_CHECK(less->view() == map->view());
  }
  return 0;
}

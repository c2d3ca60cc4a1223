// Untrusted lists of extents: an error, or a stream that is complete, the same from every offset,
// and omits nothing but zeros and data at the same address on both sides.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "fuzz/support/check.h"
#include "fuzz/support/input.h"
#include "source/image/file_extents.h"
#include "tests/support/cursors.h"
#include "tests/support/memory_image.h"

namespace {

using cbt::FileExtent;
using cbt::reference::Ranges;

constexpr uint64_t kSize = 20'000;

class FuzzedLister final : public cbt::ExtentLister {
 public:
  FuzzedLister(std::vector<FileExtent> extents, size_t per_call, bool as_asked)
      : extents_(std::move(extents)), per_call_(per_call), as_asked_(as_asked) {}

 private:
  absl::StatusOr<size_t> List(uint64_t begin, uint64_t end,
                              std::span<FileExtent> out) const override {
    size_t count = 0;
    for (const FileExtent& extent : extents_) {
      // No sums: they may wrap.
      const bool is_before = extent.logical <= begin && begin - extent.logical >= extent.length;
      if (as_asked_ && (is_before || extent.logical >= end)) continue;
      if (count == out.size() || count == per_call_) break;
      out[count++] = extent;
    }
    return count;
  }

  const std::vector<FileExtent> extents_;
  const size_t per_call_;
  const bool as_asked_;
};

using cbt::fuzz::Input;

// Some have the addresses of another list: only those can be known to be equal.
std::vector<FileExtent> Extents(Input& input, const std::vector<FileExtent>& others) {
  std::vector<FileExtent> extents;
  for (uint64_t count = input.Take(1) % 16; count > 0 && !input.empty(); --count) {
    FileExtent extent;
    const uint64_t shape = input.Take(1);
    extent.logical = input.Take((shape & 1) != 0 ? 8 : 2);
    extent.length = input.Take((shape & 2) != 0 ? 8 : 2);
    extent.physical = input.Take((shape & 4) != 0 ? 8 : 2);
    if ((shape & 8) != 0) extent.physical = extent.logical + 4096;
    extent.flags = static_cast<uint32_t>(input.Take((shape & 16) != 0 ? 4 : 0));
    if ((shape & 32) != 0 && extents.size() < others.size()) extent = others[extents.size()];
    if ((shape & 64) != 0) extent.flags = uint32_t{1} << (input.Take(1) % 32);
    extents.push_back(extent);
  }
  return extents;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Different in every byte, so that what is compared differs.
  static const cbt::test::MemoryImage base_file(std::vector<uint8_t>(kSize - 3000, 1));
  static const cbt::test::MemoryImage target_file(std::vector<uint8_t>(kSize, 2));
  static const auto base_image = base_file.Open();
  static const auto target_image = target_file.Open();
  Input input(data, size);
  cbt::ReflinkDeltaOptions options;
  const uint64_t choice = input.Take(2);
  options.images.block_size = uint64_t{512} << (choice & 3);
  options.compare_data = (choice & 4) != 0;
  options.images.skip_holes = (choice & 8) == 0;
  const size_t per_call = 1 + (choice >> 4 & 15);
  const bool as_asked = (choice & 256) != 0;
  const std::vector<FileExtent> base = Extents(input, {});
  const std::vector<FileExtent> target = Extents(input, base);
  const auto base_lister = std::make_shared<FuzzedLister>(base, per_call, as_asked);
  const auto target_lister = std::make_shared<FuzzedLister>(target, per_call, as_asked);

  // An answer without its first extents looks valid, and whether overlapping extents are detected
  // depends on where the first query begins.
  const auto overlaps = [](const FileExtent& a, const FileExtent& b) {
    return b.logical < a.logical || b.logical - a.logical < a.length;
  };
  const bool sorted = std::adjacent_find(base.begin(), base.end(), overlaps) == base.end() &&
                      std::adjacent_find(target.begin(), target.end(), overlaps) == target.end();
  const bool honest = as_asked && sorted;

  auto cursor = cbt::MakePlacementDeltaCursor({base_image, base_lister},
                                              {target_image, target_lister}, options);
  CBT_FUZZ_CHECK(cursor.ok());
  const auto full = cbt::test::Drain(**cursor, 1 + per_call);
  if (full.ok()) {
    CBT_FUZZ_CHECK((*cursor)->covered() == kSize);
    const auto reported = cbt::reference::BytesOf(*full, kSize);
    // The extents that hold byte i must be unwritten or at the same address on both sides. That can
    // change only where an extent begins or ends.
    std::set<uint64_t> places = {0, kSize - 3000};
    for (const auto& [offset, length] : *full) places.insert(offset + length);
    for (const auto* const list : {&base, &target}) {
      for (const FileExtent& extent : *list) {
        places.insert(extent.logical);
        places.insert(extent.logical + extent.length);
      }
    }
    for (const uint64_t i : places) {
      if (i >= kSize || reported[i]) continue;
      const auto holds = [i](const FileExtent& extent) {
        return extent.logical <= i && i - extent.logical < extent.length;
      };
      const auto a = std::find_if(base.begin(), base.end(), holds);
      const auto b = std::find_if(target.begin(), target.end(), holds);
      const bool a_data = i < kSize - 3000 && a != base.end() && (a->flags & 0x800) == 0;
      const bool b_data = b != target.end() && (b->flags & 0x800) == 0;
      const bool same = a_data && b_data && a->physical - a->logical == b->physical - b->logical &&
                        ((a->flags | b->flags) & ~uint32_t{0x3001}) == 0;
      CBT_FUZZ_CHECK(same || (!a_data && !b_data) || !honest);
    }
    for (const uint64_t offset : {kSize / 3, kSize / 2 + 1, kSize - 1}) {
      const auto rest = cbt::test::DrainFrom(**cursor, offset, 3);
      // The list ignores the query, so it may be wrong from there.
      if (!rest.ok()) {
        CBT_FUZZ_CHECK(!honest);
        continue;
      }
      const uint64_t from = offset / options.images.block_size * options.images.block_size;
      CBT_FUZZ_CHECK(!honest || *rest == cbt::reference::CutAt(*full, from));
    }
  } else {
    CBT_FUZZ_CHECK(full.status().code() == absl::StatusCode::kDataLoss);
  }

  auto allocation = cbt::MakePlacementAllocationCursor({target_image, target_lister}, {});
  CBT_FUZZ_CHECK(allocation.ok());
  const auto allocated = cbt::test::Drain(**allocation);
  CBT_FUZZ_CHECK(allocated.ok() || allocated.status().code() == absl::StatusCode::kDataLoss);
  return 0;
}

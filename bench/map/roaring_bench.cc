// The cost of converting a change map to CRoaring and back (cbt/bridge/roaring.h).
//
//   to_roaring/<pattern>/<blocks>/...     a map as a roaring_bitmap_t
//   from_roaring/<pattern>/<blocks>/...   and back, validated
//
//   cbt         the bridge: the portable bytes, written once and read once
//   add_range   CRoaring from the extents of a cursor
//   builder     a map from CRoaring's values, one by one
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/bitmaps.h"
#include "cbt/bridge/roaring.h"
#include "cbt/change_map.h"
#include "cbt/cursor.h"
#include "cbt/units.h"

namespace cbt::bench {
namespace {

using Bitmap = roaring_names::Bitmap32;
using Owner = RoaringOwner<Bitmap>;

constexpr uint64_t kBlocks = uint64_t{1} << 26;
constexpr VolumeGeometry kVolume = {.capacity = kBlocks * 4 * kKiB, .granularity = 4 * kKiB};

// A map of one of the bitmap patterns, and the same as CRoaring's.
struct Inputs {
  explicit Inputs(const std::string& name) {
    std::vector<uint64_t> words(kBlocks / 64);
    for (const Pattern& pattern : DiffPatterns()) {
      if (pattern.name != name) continue;
      const std::vector<uint64_t> differences = Differences(pattern, words.size());
      std::copy(differences.begin(), differences.end(), words.begin());
    }
    const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(words.data()),
                                         words.size() * 8);
    map = *ChangeMap::FromBitmap(*BitmapView::Create(bytes, 0, kBlocks), kVolume);
    bitmap = *ToRoaring<Bitmap>(map);
  }
  ChangeMap map;
  Owner bitmap;
};

// CRoaring's functions, in whichever namespace its version declares them.
using namespace ::roaring;       // NOLINT(google-build-using-namespace)
using namespace ::roaring::api;  // NOLINT(google-build-using-namespace)

// Created once, before the first repetition that needs them.
const Inputs& InputsOf(const std::string& pattern) {
  static std::map<std::string, std::unique_ptr<Inputs>> all;
  std::unique_ptr<Inputs>& one = all[pattern];
  if (one == nullptr) one = std::make_unique<Inputs>(pattern);
  return *one;
}

Owner AddRanges(const ChangeMap& map) {
  Owner bitmap(roaring_bitmap_create());
  const auto cursor = MakeChangeMapCursor(map);
  const absl::Status status = ForEachBatch(*cursor, [&](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      roaring_bitmap_add_range(bitmap.get(), batch[i].offset / kVolume.granularity,
                               batch[i].end() / kVolume.granularity);
    }
    return absl::OkStatus();
  });
  if (!status.ok()) std::abort();
  return bitmap;
}

ChangeMap BuildFromValues(const Bitmap& bitmap) {
  std::vector<uint32_t> values(roaring_names::Cardinality(bitmap));
  roaring_names::ToArray(bitmap, values.data());
  ChangeMapBuilder builder = *ChangeMapBuilder::Create(kVolume);
  for (const uint32_t value : values) {
    if (!builder.AddBlocks(value, uint64_t{value} + 1).ok()) std::abort();
  }
  return *builder.Build();
}

void Register(const std::string& pattern) {
  const auto add = [&](const std::string& family, const char* impl,
                       const std::function<void(const Inputs&)>& work) {
    const std::string name = family + "/" + pattern + "/" + std::to_string(kBlocks) + "/" + impl;
    benchmark::RegisterBenchmark(name.c_str(), [pattern, work](benchmark::State& state) {
      const Inputs& inputs = InputsOf(pattern);
      for (auto _ : state) work(inputs);
      state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(inputs.map->cardinality()));
    });
  };
  add("to_roaring", "cbt",
      [](const Inputs& inputs) { benchmark::DoNotOptimize(*ToRoaring<Bitmap>(inputs.map)); });
  add("to_roaring", "add_range",
      [](const Inputs& inputs) { benchmark::DoNotOptimize(AddRanges(inputs.map)); });
  add("from_roaring", "cbt", [](const Inputs& inputs) {
    benchmark::DoNotOptimize(*FromRoaring(*inputs.bitmap, kVolume));
  });
  add("from_roaring", "builder",
      [](const Inputs& inputs) { benchmark::DoNotOptimize(BuildFromValues(*inputs.bitmap)); });
}

const bool registered = [] {
  for (const char* pattern : {"random1e-3", "random5e-1", "clustered"}) Register(pattern);
  return true;
}();

}  // namespace
}  // namespace cbt::bench

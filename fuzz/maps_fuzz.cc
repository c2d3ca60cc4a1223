// Change maps: strangers' bytes against a decoder that believes nothing, set algebra against
// std::set, files and manifests that are anything.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <vector>

#include "cbt/change_map.h"
#include "cbt/change_map_file.h"
#include "check.h"
#include "map/chain_manifest.h"
#include "map/map_cursor.h"
#include "map/map_file.h"
#include "reference/portable_roaring.h"

namespace {

using Set = std::set<uint64_t>;

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
  CBT_FUZZ_CHECK(map->portable().size() <= bytes.size());
  CBT_FUZZ_CHECK(map.view() == *got);
}

// Ranges around the edges of containers.
Set SomeSet(FuzzedDataProvider& in, cbt::ChangeMap& map) {
  auto builder = *cbt::ChangeMapBuilder::Create(kVolume);
  Set set;
  for (auto n = in.ConsumeIntegralInRange<int>(0, 12); n > 0; --n) {
    const uint64_t key = in.PickValueInArray<uint64_t>({0, 1, 2, 65535, 65536, 65537});
    const uint64_t begin = (key << 16) + in.ConsumeIntegral<uint16_t>();
    const uint64_t length = in.ConsumeBool() ? in.ConsumeIntegralInRange<uint64_t>(1, 20)
                                             : in.ConsumeIntegralInRange<uint64_t>(1, 70000);
    const uint64_t step = in.ConsumeIntegralInRange<uint64_t>(1, 3);
    for (uint64_t b = begin; b < begin + length; b += step) {
      CBT_FUZZ_CHECK(builder.AddBlocks(b, b + 1).ok());
      set.insert(b);
    }
  }
  map = *builder.Build();
  return set;
}

template <typename Operation>
void Same(const absl::StatusOr<cbt::ChangeMap>& map, Operation operation, const Set& a,
          const Set& b) {
  std::vector<uint64_t> want;
  operation(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(want));
  CBT_FUZZ_CHECK(map.ok() && BlocksOf(*cbt::MakeChangeMapCursor(*map)) == want);
}

#define CBT_FUZZ_SET(name) [](auto... arguments) { name(arguments...); }

void Algebra(FuzzedDataProvider& in) {
  cbt::ChangeMap a;
  cbt::ChangeMap b;
  const Set set_a = SomeSet(in, a);
  const Set set_b = SomeSet(in, b);
  Same(cbt::Union(a, b), CBT_FUZZ_SET(std::set_union), set_a, set_b);
  Same(cbt::Intersection(a, b), CBT_FUZZ_SET(std::set_intersection), set_a, set_b);
  Same(cbt::Difference(a, b), CBT_FUZZ_SET(std::set_difference), set_a, set_b);
  Same(cbt::SymmetricDifference(a, b), CBT_FUZZ_SET(std::set_symmetric_difference), set_a, set_b);
  const uint64_t begin = in.ConsumeIntegralInRange<uint64_t>(0, 300000);
  const uint64_t end = begin + in.ConsumeIntegralInRange<uint64_t>(0, 70000);
  const auto first = set_a.lower_bound(begin);
  const auto inside = static_cast<uint64_t>(std::distance(first, set_a.lower_bound(end)));
  CBT_FUZZ_CHECK(a->ContainsRange(begin, end) == (inside == end - begin));
  CBT_FUZZ_CHECK(a->Rank(end) - a->Rank(begin) == inside);
  // A position in the union, from which a cursor goes on.
  const std::vector<cbt::ChangeMap> both = {a, b};
  const auto cursor = *cbt::MakeUnionCursor(both);
  CBT_FUZZ_CHECK(cursor->Seek(begin * 512).ok());
  Set want = set_a;
  want.insert(set_b.begin(), set_b.end());
  want.erase(want.begin(), want.lower_bound(begin));
  CBT_FUZZ_CHECK(BlocksOf(*cursor) == std::vector<uint64_t>(want.begin(), want.end()));
}

void File(const std::vector<uint8_t>& bytes) {
  const auto map = cbt::DecodeChangeMap(bytes, "file");
  const auto lazy = cbt::OpenLazily(bytes, nullptr, "file");
  if (map.ok()) {
    CBT_FUZZ_CHECK(lazy.ok());
    const auto again = cbt::DecodeChangeMap(*cbt::EncodeChangeMap(*map), "again");
    CBT_FUZZ_CHECK(again.ok() && again->view() == map->view());
  }
  if (!lazy.ok()) return;
  // A map of a few bytes can be of a volume that takes for ever to go through.
  const auto cursor =
      cbt::MakeContainerCursor({lazy->index}, lazy->header.geometry, {lazy->storage});
  cbt::ExtentBatch batch;
  for (int i = 0; i < 100; ++i) {
    const auto step = cursor->Next(batch);
    CBT_FUZZ_CHECK(step.ok() || !map.ok());
    if (!step.ok() || *step == cbt::Step::kComplete) break;
  }
}

void Manifest(const std::vector<uint8_t>& bytes) {
  const auto manifest = cbt::DecodeManifest(bytes, "CHAIN");
  if (manifest.ok()) CBT_FUZZ_CHECK(cbt::EncodeManifest(*manifest) == bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider in(data, size);
  switch (in.ConsumeIntegralInRange<int>(0, 3)) {
    case 0:
      Algebra(in);
      break;
    case 1:
      File(in.ConsumeRemainingBytes<uint8_t>());
      break;
    case 2:
      Manifest(in.ConsumeRemainingBytes<uint8_t>());
      break;
    default:
      Portable(in.ConsumeRemainingBytes<uint8_t>());
      break;
  }
  return 0;
}

// Algebra of change maps against the standard library: std::set_union and the others.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "cbt/change_map.h"
#include "cbt/units.h"
#include "fuzz/support/blocks.h"
#include "fuzz/support/check.h"

namespace {

using Set = std::vector<uint64_t>;  // ascending, unique: std::set takes a hundred times as long

constexpr cbt::VolumeGeometry kVolume = {cbt::kPiB, 512};

std::vector<uint64_t> BlocksOf(cbt::ExtentCursor& cursor) {
  return cbt::fuzz::BlocksOf(cursor, kVolume.granularity);
}

// Ranges around the edges of containers: isolated values, sometimes more than an array holds, and
// sometimes a whole container.
Set SomeSet(FuzzedDataProvider& in, cbt::ChangeMap& map) {
  auto builder = *cbt::ChangeMapBuilder::Create(kVolume);
  Set set;
  uint64_t room = 5'000;
  for (auto n = in.ConsumeIntegralInRange<int>(0, 12); n > 0 && room > 0; --n) {
    const uint64_t key = in.PickValueInArray<uint64_t>({0, 1, 2, 65535, 65536, 65537});
    uint64_t begin = (key << 16) + in.ConsumeIntegral<uint16_t>();
    uint64_t length = 0;
    uint64_t step = 1;
    switch (in.ConsumeIntegral<uint8_t>()) {
      case 255:
        begin = key << 16;
        length = 65536;
        room = 1;
        break;
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
      case 6:
        step = in.ConsumeIntegralInRange<uint64_t>(1, 3);
        length = step * std::min<uint64_t>(room, in.ConsumeIntegralInRange<uint64_t>(1, 4200));
        break;
      default:
        step = in.ConsumeIntegralInRange<uint64_t>(1, 3);
        length = in.ConsumeIntegralInRange<uint64_t>(1, 20);
        break;
    }
    room -= std::min(room, length / step);
    if (step == 1) CBT_FUZZ_CHECK(builder.AddBlocks(begin, begin + length).ok());
    for (uint64_t b = begin; b < begin + length; b += step) {
      if (step != 1) CBT_FUZZ_CHECK(builder.AddBlocks(b, b + 1).ok());
      set.push_back(b);
    }
  }
  map = *builder.Build();
  std::ranges::sort(set);
  set.erase(std::unique(set.begin(), set.end()), set.end());
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
  // Built maps are canonical: the same blocks built another way have the same bytes.
  const auto again = cbt::ChangeMap::FromCursor(*cbt::MakeChangeMapCursor(a));
  CBT_FUZZ_CHECK(again.ok() && std::ranges::equal((*again)->portable(), a->portable()));
  // Rounded outward to coarser blocks, and cut at a smaller capacity.
  const uint64_t factor = in.ConsumeIntegralInRange<uint64_t>(1, 9);
  Set coarse;
  for (const uint64_t block : set_a) coarse.push_back(block / factor);
  coarse.erase(std::unique(coarse.begin(), coarse.end()), coarse.end());
  const auto wide = cbt::WithGranularity(a, 512 * factor);
  CBT_FUZZ_CHECK(wide.ok() && (*wide)->cardinality() == coarse.size());
  for (size_t i = 0; i < coarse.size(); i += 1 + coarse.size() / 64) {
    CBT_FUZZ_CHECK((*wide)->Contains(coarse[i]));
  }
  const uint64_t begin = in.ConsumeIntegralInRange<uint64_t>(0, 300000);
  const auto less = cbt::WithCapacity(a, begin * 512);
  CBT_FUZZ_CHECK(less.ok() && (*less)->cardinality() == a->Rank(begin));
  const uint64_t end = begin + in.ConsumeIntegralInRange<uint64_t>(0, 70000);
  const auto first = std::ranges::lower_bound(set_a, begin);
  const auto inside =
      static_cast<uint64_t>(std::distance(first, std::ranges::lower_bound(set_a, end)));
  CBT_FUZZ_CHECK(a->ContainsRange(begin, end) == (inside == end - begin));
  CBT_FUZZ_CHECK(a->Rank(end) - a->Rank(begin) == inside);
  // A position in the union from which a cursor continues.
  const std::vector<cbt::ChangeMap> both = {a, b};
  const auto cursor = *cbt::MakeUnionCursor(both);
  CBT_FUZZ_CHECK(cursor->Seek(begin * 512).ok());
  Set want;
  std::ranges::set_union(set_a, set_b, std::back_inserter(want));
  want.erase(want.begin(), std::ranges::lower_bound(want, begin));
  CBT_FUZZ_CHECK(BlocksOf(*cursor) == want);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider in(data, size);
  Algebra(in);
  return 0;
}

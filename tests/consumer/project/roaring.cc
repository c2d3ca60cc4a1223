// Converts a foreign bitmap to a change map and back, through cbt::roaring.
#include "cbt/bridge/roaring.h"

#include <cstdint>
#include <cstdio>

#include "cbt/units.h"

using namespace roaring;  // empty before CRoaring 1

int main() {
  Roaring64Map changed;
  for (const uint64_t block : {uint64_t{1}, uint64_t{2}, uint64_t{70'000}}) changed.add(block);
  const auto map = cbt::FromRoaring(changed, {.capacity = cbt::kGiB, .granularity = 4 * cbt::kKiB});
  if (!map.ok()) return 1;
  const auto back = cbt::ToRoaring<Roaring64Map>(*map);
  if (!back.ok() || !(*back == changed)) return 1;
  std::printf("%d blocks\n", static_cast<int>(back->cardinality()));
}

// A volume and the answer that it must give.
#ifndef CBT_TESTS_RPC_SUPPORT_TRUTH_H_
#define CBT_TESTS_RPC_SUPPORT_TRUTH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>

#include "tests/reference/volume.h"
#include "tests/rpc/support/providers.h"
#include "tests/support/cursors.h"
#include "tests/support/generators.h"

namespace cbt::test {

// All facts about a volume.
struct Truth {
  uint64_t capacity = 0;
  uint64_t block = 0;  // 0: extents
  reference::Ranges changes = {};
  reference::Ranges full = {};  // the tuples of a whole answer

  // Runs and gaps of random lengths, about one run per `spacing` bytes.
  static Truth Random(std::mt19937_64& random, size_t capacity, uint64_t block, size_t spacing) {
    const reference::ByteSet set = RunsAndGaps(random, capacity, spacing);
    Truth truth = {.capacity = capacity, .block = block, .changes = reference::RunsOf(set)};
    truth.full = block == 0 ? truth.changes : reference::BlocksOf(set, block);
    return truth;
  }

  reference::Ranges From(uint64_t offset) const {
    return offset >= capacity ? reference::Ranges() : reference::CutAt(full, offset);
  }

  // The whole answer with the last tuple cut at the capacity.
  reference::Ranges Cut() const {
    reference::Ranges cut = full;
    if (!cut.empty()) {
      cut.back().second = std::min<uint64_t>(cut.back().second, capacity - cut.back().first);
    }
    return cut;
  }

  // The volume as a provider returns it.
  MetadataSource Source() const {
    std::unique_ptr<ExtentCursor> cursor = CursorOver(changes, capacity);
    return block == 0 ? Extents(std::move(cursor)) : Blocks(std::move(cursor), block);
  }
};

// For properties: a volume of up to 3,000 bytes, as extents or as blocks of up to 128 bytes.
inline Truth AnyTruth(std::mt19937_64& random) {
  const size_t capacity = Between<size_t>(1, 3000);
  const uint64_t block = uint64_t{1} << Between(0, 8);
  const size_t spacing = Between<size_t>(1, 40);
  return Truth::Random(random, capacity, random() % 2 == 0 ? block : 0, spacing);
}

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_SUPPORT_TRUTH_H_

// What cursors report, as numbers of blocks.
#ifndef FUZZ_SUPPORT_BLOCKS_H_
#define FUZZ_SUPPORT_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cbt/cursor.h"
#include "fuzz/support/check.h"

namespace cbt::fuzz {

// The blocks of `block_size` bytes that a cursor reports, ascending.
inline std::vector<uint64_t> BlocksOf(ExtentCursor& cursor, uint64_t block_size) {
  std::vector<uint64_t> blocks;
  const absl::Status status = ForEachBatch(cursor, [&](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      for (uint64_t b = batch[i].offset / block_size; b * block_size < batch[i].end(); ++b) {
        blocks.push_back(b);
      }
    }
    return absl::OkStatus();
  });
  CBT_FUZZ_CHECK(status.ok());
  return blocks;
}

}  // namespace cbt::fuzz

#endif  // FUZZ_SUPPORT_BLOCKS_H_

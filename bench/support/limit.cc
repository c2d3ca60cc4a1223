#include "bench/support/limit.h"

namespace cbt::bench {
namespace {

// Eight words, in one register if the machine has it. Unaligned loads, like all implementations.
using Wide [[gnu::vector_size(64), gnu::aligned(8), gnu::may_alias]] = uint64_t;

}  // namespace

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
[[gnu::target_clones("default", "avx2", "avx512f")]]
#endif
uint64_t
ReadBoth(const void* a, const void* b, size_t bytes) {
  const auto* left = static_cast<const Wide*>(a);
  const auto* right = static_cast<const Wide*>(b);
  // Four independent chains, enough to keep every load port busy.
  Wide any[4] = {};
  for (size_t i = 0; i + 4 <= bytes / sizeof(Wide); i += 4) {
    for (size_t k = 0; k < 4; ++k) any[k] |= left[i + k] ^ right[i + k];
  }
  const Wide all = any[0] | any[1] | any[2] | any[3];
  return all[0] | all[1] | all[2] | all[3] | all[4] | all[5] | all[6] | all[7];
}

}  // namespace cbt::bench

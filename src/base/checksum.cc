#include "base/checksum.h"

// In this file alone, so that nothing needs to be linked.
#define XXH_INLINE_ALL  // NOLINT(readability-identifier-naming): its name
#include <xxhash.h>

namespace cbt {

uint64_t Checksum(std::span<const uint8_t> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace cbt

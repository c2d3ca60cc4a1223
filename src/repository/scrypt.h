// The key derivation scrypt (RFC 7914), with its lanes side by side.
#ifndef CBT_REPOSITORY_SCRYPT_H_
#define CBT_REPOSITORY_SCRYPT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "cbt/simd.h"

namespace cbt::repository {

// A power of two from 2 to 2^31, and what scrypt calls its block size and parallelization.
struct ScryptCost {
  uint64_t n = 0;
  uint64_t r = 0;
  uint64_t p = 0;
  uint64_t max_bytes = 0;  // memory of all threads together, unless a lane alone needs more
};

// restic chooses `p` so that a core needs half a second for the lanes, one after another as OpenSSL
// computes them. Here up to four go side by side, in as many threads as there are cores.
// Memory: 128 * n * r bytes for each lane at work, and 128 * r * p.
// Requires: `level` is one of AvailableSimdLevels().
// Errors: RESOURCE_EXHAUSTED without memory; INTERNAL if OpenSSL has no HMAC-SHA-256.
absl::Status Scrypt(std::string_view password, std::span<const uint8_t> salt,
                    const ScryptCost& cost, SimdLevel level, std::span<uint8_t> out);

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_SCRYPT_H_

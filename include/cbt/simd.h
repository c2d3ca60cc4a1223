// Which instruction sets the kernels use, and how to force another one.
//
// The first kernel call selects the best level that the processor and the operating system support.
// The environment variable CBT_SIMD (scalar, sse42, avx2, avx512, neon) forces a level, for tests
// and troubleshooting; a family without a variant for that level uses its next lower one.
#ifndef CBT_SIMD_H_
#define CBT_SIMD_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cbt/version.h"

namespace cbt {

// Levels in ascending order within an architecture. kScalar runs everywhere.
enum class SimdLevel : uint8_t { kScalar, kSse42, kAvx2, kAvx512, kNeon };

// The name of a level as CBT_SIMD spells it.
const char* SimdLevelName(SimdLevel level) noexcept;

// The levels that are compiled in and that this machine can run, ascending, starting with kScalar.
std::span<const SimdLevel> AvailableSimdLevels() noexcept;

// The selected level.
SimdLevel ActiveSimdLevel() noexcept;

// False if CBT_SIMD names a level that is unknown or can't run here; kScalar is active then. The
// library prints nothing: programs should check this and warn.
bool SimdRequestHonoured() noexcept;

// A kernel family and the level of its variant in use.
struct KernelInfo {
  std::string family;
  SimdLevel level;
};

// Every kernel family with its variant in use.
std::vector<KernelInfo> ActiveKernels();

}  // namespace cbt

#endif  // CBT_SIMD_H_

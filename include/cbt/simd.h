// Which instruction sets the kernels use, and how to choose another one.
//
// The best level that the processor and the operating system offer is taken once, at the first
// kernel call. The environment variable CBT_SIMD (scalar, sse42, avx2, avx512, neon) forces a
// level, for tests and support cases; a family that has no variant of that level takes its next
// lower one.
#ifndef CBT_SIMD_H_
#define CBT_SIMD_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cbt {

// Levels in ascending order within an architecture. kScalar runs everywhere.
enum class SimdLevel : uint8_t { kScalar, kSse42, kAvx2, kAvx512, kNeon };

// The name of a level as CBT_SIMD spells it.
const char* SimdLevelName(SimdLevel level) noexcept;

// The levels that are compiled in and that this machine can run, ascending; kScalar is the first.
std::span<const SimdLevel> AvailableSimdLevels() noexcept;

// The level that kernels are chosen for.
SimdLevel ActiveSimdLevel() noexcept;

// False when CBT_SIMD named a level that is unknown or that can't run here; kScalar is active then.
// The library itself prints nothing: programs should look and say so.
bool SimdRequestHonoured() noexcept;

// One kernel family and the level of the variant that is in use for it.
struct KernelInfo {
  std::string family;
  SimdLevel level;
};

// Every kernel family with its variant in use.
std::vector<KernelInfo> ActiveKernels();

}  // namespace cbt

#endif  // CBT_SIMD_H_


#include <cstdlib>
#include <string_view>

#include "cbt/simd.h"
#include "simd/dispatch/variants.h"

namespace cbt {
namespace {

struct Levels {
  std::vector<SimdLevel> available{SimdLevel::kScalar};
  SimdLevel active = SimdLevel::kScalar;
  bool honoured = true;
};

Levels Detect() {
  Levels levels;
  // __builtin_cpu_supports also checks that the operating system saves the registers.
#define CBT_ISA_LEVEL(level, supported) \
  if (supported) levels.available.push_back(SimdLevel::level);
#include "isa_levels.inc"
#undef CBT_ISA_LEVEL
  levels.active = levels.available.back();
  // Read once, before the first kernel runs; nothing here writes the environment.
  const char* request = std::getenv("CBT_SIMD");  // NOLINT(concurrency-mt-unsafe)
  if (request == nullptr || *request == '\0') return levels;
  levels.active = SimdLevel::kScalar;
  levels.honoured = false;
  for (const SimdLevel level : levels.available) {
    if (std::string_view(request) == SimdLevelName(level)) {
      levels.active = level;
      levels.honoured = true;
    }
  }
  return levels;
}

const Levels& TheLevels() noexcept {
  static const Levels levels = Detect();
  return levels;
}

}  // namespace

const char* SimdLevelName(SimdLevel level) noexcept {
  switch (level) {
    case SimdLevel::kScalar:
      return "scalar";
    case SimdLevel::kSse42:
      return "sse42";
    case SimdLevel::kAvx2:
      return "avx2";
    case SimdLevel::kAvx512:
      return "avx512";
    case SimdLevel::kNeon:
      return "neon";
  }
  return "unknown";
}

std::span<const SimdLevel> AvailableSimdLevels() noexcept { return TheLevels().available; }

SimdLevel ActiveSimdLevel() noexcept { return TheLevels().active; }

bool SimdRequestHonoured() noexcept { return TheLevels().honoured; }

namespace simd {

bool HasFastPdep() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_is("znver1") == 0 && __builtin_cpu_is("znver2") == 0;
#else
  return false;
#endif
}

bool IsRunnable(SimdLevel level) noexcept {
  for (const SimdLevel available : TheLevels().available) {
    if (available == level) return true;
  }
  return false;
}

}  // namespace simd
}  // namespace cbt

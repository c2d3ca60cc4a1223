#include "programs/cbt/support/version_text.h"

#include <cstdlib>
#include <span>
#include <string>

#include "cbt/simd.h"
#include "cbt/version.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

std::string AvailableLevels(const char* separator) {
  std::string names;
  for (const SimdLevel level : AvailableSimdLevels()) {
    if (!names.empty()) names += separator;
    names += SimdLevelName(level);
  }
  return names;
}

}  // namespace

std::string VersionText(std::span<const std::string> lines) {
  std::string text = std::string(ProgramName()) + " " + kVersion + "\n";
  text += "simd levels available: " + AvailableLevels(" ") + "\n";
  text += std::string("simd level active: ") + SimdLevelName(ActiveSimdLevel()) + "\n";
  for (const KernelInfo& kernel : ActiveKernels()) {
    text += "kernel " + kernel.family + ": " + SimdLevelName(kernel.level) + "\n";
  }
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

absl::Status CheckSimdRequest() {
  if (SimdRequestHonoured()) return absl::OkStatus();
  const char* const request = std::getenv("CBT_SIMD");  // NOLINT(concurrency-mt-unsafe)
  return UsageError(std::string("CBT_SIMD: '") + (request == nullptr ? "" : request) + "'",
                    "this machine and build have " + AvailableLevels(", "));
}

}  // namespace cbt::cli

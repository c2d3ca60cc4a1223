// The output of `--version`.
#ifndef CBT_PROGRAMS_CBT_SUPPORT_VERSION_TEXT_H_
#define CBT_PROGRAMS_CBT_SUPPORT_VERSION_TEXT_H_

#include <span>
#include <string>

#include "absl/status/status.h"

namespace cbt::cli {

// The program's name and version, the instruction-set levels of this machine, the kernels in use
// and `lines`; ends with a newline.
std::string VersionText(std::span<const std::string> lines);

// OK unless CBT_SIMD requests an unavailable level: results of other kernels would mislead anyone
// who uses it to find a fault.
// Errors: INVALID_ARGUMENT.
absl::Status CheckSimdRequest();

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_SUPPORT_VERSION_TEXT_H_

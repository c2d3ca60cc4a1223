// What `cbt --version` prints.
#ifndef CBT_CLI_SUPPORT_VERSION_TEXT_H_
#define CBT_CLI_SUPPORT_VERSION_TEXT_H_

#include <string>

#include "absl/status/status.h"

namespace cbt::cli {

// The version, the instruction-set levels of this machine and the kernels in use; ends with a line.
std::string VersionText();

// OK unless CBT_SIMD asks for what can't be had: an answer from other kernels than the ones that
// were asked for would mislead whoever hunts a fault with it.
// Errors: INVALID_ARGUMENT.
absl::Status CheckSimdRequest();

}  // namespace cbt::cli

#endif  // CBT_CLI_SUPPORT_VERSION_TEXT_H_

// Numbers in human-readable form.
#ifndef CBT_PROGRAMS_CBT_SUPPORT_NUMBERS_H_
#define CBT_PROGRAMS_CBT_SUPPORT_NUMBERS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/parse_number.h"

namespace cbt::cli {

using cbt::ParseNumber;

// A duration in seconds, `5` or `0.25`, at most about 31 years; 0 only for zero itself.
// Errors: INVALID_ARGUMENT.
absl::StatusOr<std::chrono::milliseconds> ParseSeconds(std::string_view text);

// `512 B`, `12.0 MiB`.
std::string HumanSize(uint64_t bytes);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_SUPPORT_NUMBERS_H_

// Numbers with binary suffixes.
#ifndef CBT_BASE_PARSE_NUMBER_H_
#define CBT_BASE_PARSE_NUMBER_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace cbt {

// Parses a decimal number with an optional binary suffix K, M, G, T or P, which may be followed by
// `iB`: `4096`, `64K`, `1MiB`.
// Errors: INVALID_ARGUMENT, saying why `text` is not a number or that it exceeds `max`.
absl::StatusOr<uint64_t> ParseNumber(std::string_view text, uint64_t max);

}  // namespace cbt

#endif  // CBT_BASE_PARSE_NUMBER_H_

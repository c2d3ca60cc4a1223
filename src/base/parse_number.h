// Numbers as people write them.
#ifndef CBT_BASE_PARSE_NUMBER_H_
#define CBT_BASE_PARSE_NUMBER_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace cbt {

// A decimal number with an optional binary suffix K, M, G, T or P, which may be followed by `iB`:
// `4096`, `64K`, `1MiB`.
// Errors: INVALID_ARGUMENT that says why `text` is none or that it is above `max`.
absl::StatusOr<uint64_t> ParseNumber(std::string_view text, uint64_t max);

}  // namespace cbt

#endif  // CBT_BASE_PARSE_NUMBER_H_

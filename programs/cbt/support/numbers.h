// Numbers in human-readable form, and the number of threads of a subcommand.
#ifndef CBT_PROGRAMS_CBT_SUPPORT_NUMBERS_H_
#define CBT_PROGRAMS_CBT_SUPPORT_NUMBERS_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/statusor.h"
#include "base/text.h"

namespace cbt::cli {

using cbt::ParseNumber;

// A duration in seconds, `5` or `0.25`, at most about 31 years; 0 only for zero itself.
// Errors: INVALID_ARGUMENT.
absl::StatusOr<std::chrono::milliseconds> ParseSeconds(std::string_view text);

// A time such as `2026-03-01T12:00:00Z`, in nanoseconds since 1970. Errors: INVALID_ARGUMENT.
absl::StatusOr<int64_t> ParseTime(std::string_view text);
// `2026-03-01T12:00:00Z`, of nanoseconds since 1970.
std::string TimeText(int64_t nanoseconds);
// `2026-03-01 12:00`, in UTC; `-` if unknown.
std::string MinuteText(std::optional<int64_t> nanoseconds);

// `512 B`, `12.0 MiB`.
std::string HumanSize(uint64_t bytes);

// Enough to keep several reads in flight, few enough that their buffers stay small.
inline size_t WorkerThreads() {
  return std::clamp<size_t>(std::thread::hardware_concurrency(), 2, 4);
}

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_SUPPORT_NUMBERS_H_

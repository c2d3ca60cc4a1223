#include "programs/cbt/support/numbers.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <system_error>

#include "absl/time/time.h"
#include "base/text.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {

namespace {

std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  quoted.append(text).push_back('\'');
  return quoted;
}

}  // namespace

absl::StatusOr<std::chrono::milliseconds> ParseSeconds(std::string_view text) {
  constexpr double kMaxSeconds = 1e9;
  double seconds = 0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result result =
      std::from_chars(text.data(), end, seconds, std::chars_format::fixed);
  // The negation also rejects NaN.
  if (result.ec != std::errc() || result.ptr != end || !(seconds >= 0 && seconds <= kMaxSeconds)) {
    return UsageError(Quoted(text), "not a number of seconds (like 5 or 0.25)");
  }
  // 0 means "no limit" to some callers, so a time that rounds to 0 becomes the shortest limit.
  if (seconds > 0 && seconds < 0.001) return std::chrono::milliseconds(1);
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

absl::StatusOr<int64_t> ParseTime(std::string_view text) {
  absl::Time time;
  std::string ignored;
  if (absl::ParseTime(absl::RFC3339_full, AbslView(text), &time, &ignored)) {
    const int64_t nanoseconds = absl::ToUnixNanos(time);
    // Outside of 1677 to 2262 it is another time.
    if (absl::FromUnixNanos(nanoseconds) == time) return nanoseconds;
  }
  return UsageError(Quoted(text), "not a time (like 2026-03-01T12:00:00Z)");
}

std::string TimeText(int64_t nanoseconds) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E*SZ", absl::FromUnixNanos(nanoseconds),
                          absl::UTCTimeZone());
}

std::string MinuteText(std::optional<int64_t> nanoseconds) {
  if (!nanoseconds.has_value()) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M", absl::FromUnixNanos(*nanoseconds), absl::UTCTimeZone());
}

std::string HumanSize(uint64_t bytes) {
  static constexpr std::array<const char*, 7> kUnits = {"B",   "KiB", "MiB", "GiB",
                                                        "TiB", "PiB", "EiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  // 1023.95 would be printed as 1024.0.
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", value, kUnits[unit]);
  return text.data();
}

}  // namespace cbt::cli

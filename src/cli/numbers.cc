#include "cli/numbers.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <system_error>

#include "cli/status.h"

namespace cbt::cli {
namespace {

// The power of two that a suffix stands for, or -1.
int SuffixShift(std::string_view suffix) {
  if (suffix.empty()) return 0;
  const std::string_view rest = suffix.substr(1);
  if (!rest.empty() && rest != "iB") return -1;
  switch (suffix.front()) {
    case 'k':
    case 'K':
      return 10;
    case 'M':
      return 20;
    case 'G':
      return 30;
    case 'T':
      return 40;
    case 'P':
      return 50;
    default:
      return -1;
  }
}

std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  quoted.append(text).push_back('\'');
  return quoted;
}

}  // namespace

absl::StatusOr<uint64_t> ParseNumber(std::string_view text, uint64_t max) {
  if (text.starts_with('-')) {
    return UsageError(Quoted(text), "a negative number makes no sense here");
  }
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, value);
  const bool overflow = result.ec == std::errc::result_out_of_range;
  const int shift = SuffixShift({result.ptr, static_cast<size_t>(end - result.ptr)});
  if ((result.ec != std::errc() && !overflow) || shift < 0) {
    return UsageError(Quoted(text), "not a number (like 4096, 64K or 1MiB)");
  }
  if (overflow || value > (max >> shift)) {
    return UsageError(Quoted(text), "more than the largest value " + std::to_string(max));
  }
  return value << shift;
}

absl::StatusOr<std::chrono::milliseconds> ParseSeconds(std::string_view text) {
  constexpr double kMaxSeconds = 1e9;
  double seconds = 0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result result =
      std::from_chars(text.data(), end, seconds, std::chars_format::fixed);
  // Written so that "not a number" fails too.
  if (result.ec != std::errc() || result.ptr != end || !(seconds >= 0 && seconds <= kMaxSeconds)) {
    return UsageError(Quoted(text), "not a number of seconds (like 5 or 0.25)");
  }
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
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

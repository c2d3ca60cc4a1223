#include "base/parse_number.h"

#include <charconv>
#include <cstddef>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/absl_view.h"

namespace cbt {
namespace {

// The exponent of a suffix's power of two, or -1.
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

absl::Status Refused(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("'", AbslView(text), "': ", AbslView(why)));
}

}  // namespace

absl::StatusOr<uint64_t> ParseNumber(std::string_view text, uint64_t max) {
  if (text.starts_with('-')) {
    return Refused(text, "must not be negative");
  }
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, value);
  const bool overflow = result.ec == std::errc::result_out_of_range;
  const int shift = SuffixShift({result.ptr, static_cast<size_t>(end - result.ptr)});
  if ((result.ec != std::errc() && !overflow) || shift < 0) {
    return Refused(text, "not a number (such as 4096, 64K or 1MiB)");
  }
  if (overflow || value > (max >> shift)) {
    return Refused(text, "more than the maximum, " + std::to_string(max));
  }
  return value << shift;
}

}  // namespace cbt

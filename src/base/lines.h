// Text files of words, one record per line.
#ifndef CBT_BASE_LINES_H_
#define CBT_BASE_LINES_H_

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cbt {

inline constexpr std::string_view kBlanks = " \t\r";

// The words of a line.
inline std::vector<std::string> Words(std::string_view line, std::string_view separators) {
  std::vector<std::string> words;
  size_t at = 0;
  while ((at = line.find_first_not_of(separators, at)) != std::string_view::npos) {
    const size_t end = std::min(line.find_first_of(separators, at), line.size());
    words.emplace_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

// Calls `use(number, line)` for each line that is neither empty nor a comment, until one fails.
//
// Errors:  INVALID_ARGUMENT, before the first call, if the last line has no newline: a file
//          truncated in the middle of `depth=12` reads as `depth=1`, and nothing else shows it. A
//          file truncated at the end of a line can't be detected: write such files under another
//          name, then rename.
template <typename Use>
absl::Status ForEachLine(std::string_view text, Use use) {
  if (!text.empty() && text.back() != '\n') {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", std::count(text.begin(), text.end(), '\n') + 1,
                     ": the last line has no newline: is the file truncated?"));
  }
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t first = line.find_first_not_of(kBlanks);
    if (first == std::string_view::npos || line[first] == '#') continue;
    if (absl::Status status = use(number, line); !status.ok()) return status;
  }
  return absl::OkStatus();
}

inline absl::Status BadLine(size_t number, const char* expected) {
  return absl::InvalidArgumentError(absl::StrCat("line ", number, ": expected ", expected));
}

}  // namespace cbt

#endif  // CBT_BASE_LINES_H_

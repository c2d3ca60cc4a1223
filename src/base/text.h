// Text: views of abseil, numbers with suffixes, UTF-8, strings of JSON, errors of the system.
#ifndef CBT_BASE_TEXT_H_
#define CBT_BASE_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cbt {

inline absl::string_view AbslView(std::string_view text) noexcept {
  return absl::string_view(text.data(), text.size());
}

// The system's text for `error`, a value of errno. Safe to call from several threads, unlike
// strerror().
inline std::string ErrnoText(int error) { return std::generic_category().message(error); }

// Parses a decimal number with an optional binary suffix K, M, G, T or P, which may be followed by
// `iB`: `4096`, `64K`, `1MiB`.
// Errors: INVALID_ARGUMENT, saying why `text` is not a number or that it exceeds `max`.
absl::StatusOr<uint64_t> ParseNumber(std::string_view text, uint64_t max);

// The length in bytes of the UTF-8 sequence (RFC 3629) at the beginning of `text`; 0 if it is
// malformed, overlong, a surrogate or past U+10FFFF. Requires: !text.empty().
size_t Utf8SequenceLength(std::string_view text) noexcept;

// True if `text` is well-formed UTF-8. NUL is allowed.
bool IsUtf8(std::string_view text) noexcept;

// `text` as a JSON string with its quotes, in ASCII and UTF-8. Bytes that are not valid UTF-8 (file
// names may hold any) become U+FFFD.
std::string JsonString(std::string_view text);
void AppendJsonString(std::string& json, std::string_view text);

}  // namespace cbt

#endif  // CBT_BASE_TEXT_H_

// Validation of UTF-8, for names from outside.
#ifndef CBT_BASE_UTF8_H_
#define CBT_BASE_UTF8_H_

#include <cstddef>
#include <string_view>

namespace cbt {

// The length in bytes of the UTF-8 sequence (RFC 3629) at the beginning of `text`; 0 if it is
// malformed, overlong, a surrogate or past U+10FFFF. Requires: !text.empty().
size_t Utf8SequenceLength(std::string_view text) noexcept;

// True if `text` is well-formed UTF-8. NUL is allowed.
bool IsUtf8(std::string_view text) noexcept;

}  // namespace cbt

#endif  // CBT_BASE_UTF8_H_

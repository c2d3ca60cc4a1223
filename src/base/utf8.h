// Names from outside are text.
#ifndef CBT_BASE_UTF8_H_
#define CBT_BASE_UTF8_H_

#include <cstddef>
#include <string_view>

namespace cbt {

// Bytes of the UTF-8 sequence (RFC 3629) that `text`, which is not empty, starts with; 0 when it is
// malformed, overlong, a surrogate or past U+10FFFF.
size_t Utf8SequenceLength(std::string_view text) noexcept;

// True when all of `text` is well-formed UTF-8. NUL counts as text.
bool IsUtf8(std::string_view text) noexcept;

}  // namespace cbt

#endif  // CBT_BASE_UTF8_H_

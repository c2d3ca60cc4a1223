// Percent-encoding, of URLs and of texts in headers.
#ifndef CBT_BASE_PERCENT_H_
#define CBT_BASE_PERCENT_H_

#include <optional>
#include <string>
#include <string_view>

namespace cbt {

// What stays as it is; everything else becomes %XX.
enum class PercentPlain : unsigned char {
  kUnreserved,  // letters, digits and "-._~": for a segment of a path or a value of a query
  kPrintable,   // printable ASCII but "%": for the value of grpc-message
};

// A percent sign without two hexadecimal digits behind it.
enum class BrokenEscapes : unsigned char { kRefused, kKept };

// Both throw std::bad_alloc.
std::string PercentEncode(std::string_view text, PercentPlain plain);
// Nothing for a broken escape, unless they are kept.
std::optional<std::string> PercentDecode(std::string_view text, BrokenEscapes broken);

}  // namespace cbt

#endif  // CBT_BASE_PERCENT_H_

#include "base/percent.h"

#include <cstddef>

namespace cbt {
namespace {

bool StaysPlain(char c, PercentPlain plain) noexcept {
  if (plain == PercentPlain::kPrintable) return c >= ' ' && c <= '~' && c != '%';
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

// -1 for anything else.
int ValueOfHexDigit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string PercentEncode(std::string_view text, PercentPlain plain) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    if (StaysPlain(c, plain)) {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded += '%';
    encoded += kDigits[byte >> 4];
    encoded += kDigits[byte & 15];
  }
  return encoded;
}

std::optional<std::string> PercentDecode(std::string_view text, BrokenEscapes broken) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const bool whole = text.size() - i > 2;
    const int high = whole ? ValueOfHexDigit(text[i + 1]) : -1;
    const int low = whole ? ValueOfHexDigit(text[i + 2]) : -1;
    if (high >= 0 && low >= 0) {
      decoded += static_cast<char>(high << 4 | low);
      i += 2;
    } else if (broken == BrokenEscapes::kKept) {
      decoded += '%';
    } else {
      return std::nullopt;
    }
  }
  return decoded;
}

}  // namespace cbt

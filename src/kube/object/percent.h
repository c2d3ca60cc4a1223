// Percent-encoding of URLs.
#ifndef CBT_KUBE_OBJECT_PERCENT_H_
#define CBT_KUBE_OBJECT_PERCENT_H_

#include <string>
#include <string_view>

namespace cbt::kube {

// `text` for a segment of a path or a value of a query: everything but letters, digits and "-._~"
// is encoded.
inline std::string PercentEncode(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
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

}  // namespace cbt::kube

#endif  // CBT_KUBE_OBJECT_PERCENT_H_

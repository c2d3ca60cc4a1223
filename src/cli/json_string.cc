#include "cli/json_string.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace cbt::cli {
namespace {

// Bytes of the UTF-8 sequence that `text` starts with; 0 when it is malformed, overlong, a
// surrogate or past U+10FFFF.
size_t SequenceLength(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  size_t length = 0;
  uint32_t code = 0;
  uint32_t least = 0;
  if (lead >= 0xc0 && lead < 0xe0) {
    length = 2, code = lead & 0x1f, least = 0x80;
  } else if (lead >= 0xe0 && lead < 0xf0) {
    length = 3, code = lead & 0x0f, least = 0x800;
  } else if (lead >= 0xf0 && lead < 0xf8) {
    length = 4, code = lead & 0x07, least = 0x10000;
  }
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code < least || surrogate || code > 0x10ffff ? 0 : length;
}

}  // namespace

std::string JsonString(std::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    const char first = text.front();
    size_t length = SequenceLength(text);
    if (length == 0) {
      json.append("\\ufffd");
      length = 1;
    } else if (first == '"' || first == '\\') {
      json.push_back('\\');
      json.push_back(first);
    } else if (static_cast<unsigned char>(first) < 0x20 || first == 0x7f) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(first));
      json.append(escape.data());
    } else {
      json.append(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  json.push_back('"');
  return json;
}

}  // namespace cbt::cli

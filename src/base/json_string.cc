#include "base/json_string.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "base/utf8.h"

namespace cbt {

std::string JsonString(std::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    const char first = text.front();
    size_t length = Utf8SequenceLength(text);
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

}  // namespace cbt

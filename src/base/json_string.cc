#include "base/json_string.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "base/utf8.h"

namespace cbt {
namespace {

bool IsPlain(char c) noexcept { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

}  // namespace

void AppendJsonString(std::string& json, std::string_view text) {
  json.push_back('"');
  for (;;) {
    size_t plain = 0;
    while (plain < text.size() && IsPlain(text[plain])) ++plain;
    json.append(text, 0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
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
}

std::string JsonString(std::string_view text) {
  std::string json;
  AppendJsonString(json, text);
  return json;
}

}  // namespace cbt

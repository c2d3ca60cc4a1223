#include "base/text.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace cbt {
namespace {

// The exponent of a suffix's power of two, or -1.
int SuffixShift(std::string_view suffix) {
  if (suffix.empty()) return 0;
  const std::string_view rest = suffix.substr(1);
  if (!rest.empty() && rest != "iB") return -1;
  switch (suffix.front()) {
    case 'k':
    case 'K':
      return 10;
    case 'M':
      return 20;
    case 'G':
      return 30;
    case 'T':
      return 40;
    case 'P':
      return 50;
    default:
      return -1;
  }
}

absl::Status Refused(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("'", AbslView(text), "': ", AbslView(why)));
}

// In a JSON string as it is.
bool IsPlain(char c) noexcept { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

}  // namespace

absl::StatusOr<uint64_t> ParseNumber(std::string_view text, uint64_t max) {
  if (text.starts_with('-')) {
    return Refused(text, "must not be negative");
  }
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, value);
  const bool overflow = result.ec == std::errc::result_out_of_range;
  const int shift = SuffixShift({result.ptr, static_cast<size_t>(end - result.ptr)});
  if ((result.ec != std::errc() && !overflow) || shift < 0) {
    return Refused(text, "not a number (such as 4096, 64K or 1MiB)");
  }
  if (overflow || value > (max >> shift)) {
    return Refused(text, "more than the maximum, " + std::to_string(max));
  }
  return value << shift;
}

size_t Utf8SequenceLength(std::string_view text) noexcept {
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

bool IsUtf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

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

// Parses numbers in the output of programs. (Not with std::regex: GCC 12 warns inside it under the
// sanitizers.)
#ifndef CBT_TESTS_SUPPORT_NUMBERS_H_
#define CBT_TESTS_SUPPORT_NUMBERS_H_

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace cbt::test {

// Removes blanks and a number from the front of `text` and returns the number, if there is one.
inline std::optional<uint64_t> TakeNumber(std::string_view& text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  uint64_t number = 0;
  while (!text.empty() && text.front() >= '0' && text.front() <= '9') {
    number = number * 10 + static_cast<uint64_t>(text.front() - '0');
    text.remove_prefix(1);
  }
  return number;
}

// The number that follows the first `key` in `text`.
inline std::optional<uint64_t> NumberAfter(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + key.size());
  return TakeNumber(text);
}

// The same; a text without one fails the test.
inline uint64_t NumberOf(std::string_view text, std::string_view key) {
  if (const std::optional<uint64_t> number = NumberAfter(text, key)) return *number;
  throw std::runtime_error("expected a number after \"" + std::string(key) + "\" in:\n" +
                           std::string(text));
}

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_NUMBERS_H_

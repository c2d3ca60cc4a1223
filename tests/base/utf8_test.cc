#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "base/text.h"

namespace cbt {
namespace utf8_test {

TEST(Utf8Test, AcceptsExactlyWhatIsWellFormed) {
  const std::string good[] = {"",
                              "plain",
                              "\xc3\xa9",
                              "\xe2\x82\xac",
                              "\xf0\x9f\x92\xbe",
                              "\xf4\x8f\xbf\xbf",
                              std::string("\0", 1),
                              "\xed\x9f\xbf"};
  for (const auto& text : good) EXPECT_TRUE(IsUtf8(text)) << text;
  const std::string bad[] = {"\x80",         "\xc0\xaf",
                             "\xc1\xbf",     "\xe0\x80\x80",
                             "\xed\xa0\x80", "\xf0\x80\x80\x80",
                             "\xf5\x80\x80", "\xf4\x90\x80\x80",
                             "\xe2\x82",     "a\xff",
                             "\xc3(",        "\xe2\x82("};
  for (const auto& text : bad) EXPECT_FALSE(IsUtf8(text)) << text;
}

// Every sequence of up to three bytes, and every fourth byte after each three that allow one.
TEST(Utf8Test, SaysOfEveryShortSequenceWhatTheTableOfTheStandardSays) {
  const auto is_one_of = [](unsigned byte, unsigned low, unsigned high) {
    return byte >= low && byte <= high;
  };
  // Table 3-7 of the Unicode standard: valid second bytes and the length, by first byte.
  const auto begins_well = [&](unsigned a, unsigned b) {
    if (a == 0xe0) return is_one_of(b, 0xa0, 0xbf);
    if (a == 0xed) return is_one_of(b, 0x80, 0x9f);
    if (a == 0xf0) return is_one_of(b, 0x90, 0xbf);
    if (a == 0xf4) return is_one_of(b, 0x80, 0x8f);
    return is_one_of(b, 0x80, 0xbf);
  };
  const auto length = [&](unsigned a) {
    if (a < 0x80) return 1;
    if (is_one_of(a, 0xc2, 0xdf)) return 2;
    if (is_one_of(a, 0xe0, 0xef)) return 3;
    return is_one_of(a, 0xf0, 0xf4) ? 4 : 0;
  };
  uint64_t wrong = 0;
  uint64_t sound = 0;
  std::array<char, 4> bytes{};
  const auto check = [&](size_t size, bool expected) {
    wrong += IsUtf8({bytes.data(), size}) != expected ? 1 : 0;
    sound += expected ? 1 : 0;
  };
  for (unsigned a = 0; a < 256; ++a) {
    bytes[0] = static_cast<char>(a);
    check(1, a < 0x80);
    for (unsigned b = 0; b < 256; ++b) {
      bytes[1] = static_cast<char>(b);
      const bool pair = length(a) > 1 && begins_well(a, b);
      check(2, length(a) == 1 ? b < 0x80 : length(a) == 2 && pair);
      if (!pair || length(a) == 2) continue;
      for (unsigned c = 0; c < 256; ++c) {
        bytes[2] = static_cast<char>(c);
        const bool triple = is_one_of(c, 0x80, 0xbf);
        check(3, length(a) == 3 && triple);
        for (unsigned d = 0; length(a) == 4 && triple && d < 256; ++d) {
          bytes[3] = static_cast<char>(d);
          check(4, is_one_of(d, 0x80, 0xbf));
        }
      }
    }
  }
  EXPECT_EQ(wrong, 0u);
  // One byte, two of one byte each, and every code point of two to four bytes.
  EXPECT_EQ(sound, 0x80u + 0x80u * 0x80u + (0x110000u - 0x800u - 0x80u));
}

}  // namespace utf8_test
}  // namespace cbt

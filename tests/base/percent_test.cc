#include "base/percent.h"

#include <gtest/gtest.h>

#include <string>

namespace cbt {
namespace percent_test {

std::string Kept(std::string_view text) {
  return PercentDecode(text, BrokenEscapes::kKept).value_or("nothing");
}

TEST(Percent, EveryByteIsReadBack) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    const bool printable = byte >= 0x20 && byte <= 0x7e && byte != '%';
    const bool unreserved =
        byte < 0x80 && (std::isalnum(byte) != 0 || text.find_first_of("-._~") == 0);
    for (const auto& [plain, stays] : {std::pair(PercentPlain::kPrintable, printable),
                                       std::pair(PercentPlain::kUnreserved, unreserved)}) {
      const std::string encoded = PercentEncode(text, plain);
      EXPECT_EQ(encoded.size(), stays ? 1U : 3U) << byte;
      for (const char c : encoded) EXPECT_TRUE(c >= 0x20 && c <= 0x7e) << byte;
      EXPECT_EQ(PercentDecode(encoded, BrokenEscapes::kRefused), text);
      EXPECT_EQ(Kept(encoded), text);
    }
  }
  EXPECT_EQ(PercentEncode("100% \n\xc3\xa4", PercentPlain::kPrintable), "100%25 %0A%C3%A4");
  EXPECT_EQ(PercentEncode("a b/c=d&\xc3\xa4%", PercentPlain::kUnreserved),
            "a%20b%2Fc%3Dd%26%C3%A4%25");
}

TEST(Percent, BrokenEscapesAreKeptOrRefused) {
  for (const char* text : {"%", "%4", "%G1", "%1G", "%%", "a%", "%-1", "% 1", "%\xff\xff"}) {
    EXPECT_EQ(Kept(text), text);
    EXPECT_FALSE(PercentDecode(text, BrokenEscapes::kRefused).has_value()) << text;
  }
  EXPECT_EQ(Kept("%%41"), "%A");
  EXPECT_EQ(Kept("%4%41"), "%4A");
  EXPECT_EQ(Kept("%c3%A4"), "\xc3\xa4");
  EXPECT_EQ(Kept("%2541"), "%41");
}

}  // namespace percent_test
}  // namespace cbt

#include "programs/cbt/support/numbers.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cbt/units.h"
#include "tests/support/status.h"

namespace cbt::cli {
namespace numbers_test {

using test::ValueOf;

TEST(ParseNumberTest, TakesDecimalsAndBinarySuffixes) {
  const std::vector<std::pair<const char*, uint64_t>> cases = {
      {"0", 0},
      {"007", 7},
      {"4096", 4096},
      {"64K", 65536},
      {"64k", 65536},
      {"1KiB", 1024},
      {"1M", kMiB},
      {"1MiB", kMiB},
      {"3G", 3 * kGiB},
      {"16T", 16 * kTiB},
      {"2PiB", 2 * kPiB},
      {"18446744073709551615", UINT64_MAX},
      {"16383P", 16383 * kPiB},
  };
  for (const auto& [text, value] : cases) {
    const absl::StatusOr<uint64_t> parsed = ParseNumber(text, UINT64_MAX);
    ASSERT_OK(parsed) << text << ": " << parsed.status();
    EXPECT_EQ(*parsed, value) << text;
  }
}

TEST(ParseNumberTest, RefusesEverythingElse) {
  for (const char* const text : {"",
                                 "-",
                                 "-1",
                                 "-0",
                                 "+1",
                                 " 1",
                                 "1 ",
                                 "K",
                                 "iB",
                                 "1KB",
                                 "1B",
                                 "1Ki",
                                 "1KiBs",
                                 "1.5",
                                 "1e3",
                                 "0x10",
                                 "1E",
                                 "1,000",
                                 "18446744073709551616",
                                 "16384P",
                                 "99999999999999999999P",
                                 "one"}) {
    EXPECT_EQ(ParseNumber(text, UINT64_MAX).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(ParseNumberTest, KeepsTheLimitOnTheValueNotOnTheDigits) {
  EXPECT_OK(ParseNumber("64M", 64 * kMiB));
  EXPECT_FALSE(ParseNumber("65M", 64 * kMiB).ok());
  EXPECT_FALSE(ParseNumber("67108865", 64 * kMiB).ok());
  // Not rounded: 1K exceeds 1023.
  EXPECT_FALSE(ParseNumber("1K", 1023).ok());
}

TEST(ParseSecondsTest, TakesWholeAndBrokenSeconds) {
  EXPECT_EQ(ValueOf(ParseSeconds("5")), std::chrono::milliseconds(5000));
  EXPECT_EQ(ValueOf(ParseSeconds("0")), std::chrono::milliseconds(0));
  EXPECT_EQ(ValueOf(ParseSeconds("0.25")), std::chrono::milliseconds(250));
  EXPECT_EQ(ValueOf(ParseSeconds("2.3")), std::chrono::milliseconds(2300));
  for (const char* const text : {"", "-1", "1s", "nan", "inf", "1e9", "1e99", "2000000000"}) {
    EXPECT_FALSE(ParseSeconds(text).ok()) << text;
  }
}

TEST(ParseSecondsTest, ALimitNeverBecomesNone) {
  for (const char* const text : {"0.0004", "0.0009999", "0.000000000001", "0.001", "0.0014"}) {
    EXPECT_EQ(ValueOf(ParseSeconds(text)), std::chrono::milliseconds(1)) << text;
  }
  for (const char* const text : {"0", "0.0", "0.0000"}) {
    EXPECT_EQ(ValueOf(ParseSeconds(text)), std::chrono::milliseconds(0)) << text;
  }
}

TEST(HumanSizeTest, HasOneDigitAfterThePointAndNeverFourBefore) {
  EXPECT_EQ(HumanSize(0), "0 B");
  EXPECT_EQ(HumanSize(1023), "1023 B");
  EXPECT_EQ(HumanSize(1024), "1.0 KiB");
  EXPECT_EQ(HumanSize(1536), "1.5 KiB");
  EXPECT_EQ(HumanSize(kMiB - 1), "1.0 MiB");
  EXPECT_EQ(HumanSize(12 * kMiB), "12.0 MiB");
  EXPECT_EQ(HumanSize(UINT64_MAX), "16.0 EiB");
}

}  // namespace numbers_test
}  // namespace cbt::cli

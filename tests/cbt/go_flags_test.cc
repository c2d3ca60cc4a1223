// Flags as Go's package flag takes them.
#include "programs/cbt/options/go_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/status.h"

namespace cbt::cli {
namespace go_flags_test {

using std::chrono::milliseconds;
using testing::HasSubstr;

struct Parsed {
  absl::StatusOr<GoFlags::Outcome> outcome = absl::UnknownError("");
  std::string text = "default";
  bool flag = false;
  int64_t number = 7;
  double ratio = 5;
  milliseconds time = std::chrono::minutes(1);
};

Parsed Parse(const std::vector<std::string>& arguments) {
  Parsed parsed;
  GoFlags flags;
  flags.Add("text", &parsed.text, "A text");
  flags.Add("flag", &parsed.flag, "On or off");
  flags.Add("number", &parsed.number, "A number");
  flags.Add("ratio", &parsed.ratio, "A ratio");
  flags.Add("time", &parsed.time, "A time");
  parsed.outcome = flags.Parse(arguments);
  return parsed;
}

std::string ErrorOf(const std::vector<std::string>& arguments) {
  const auto outcome = Parse(arguments).outcome;
  EXPECT_TRUE(absl::IsInvalidArgument(outcome.status()));
  return std::string(outcome.status().message());
}

TEST(GoFlags, TakeOneDashOrTwoAndValuesInBothForms) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"-text=a", "-number=3", "-flag"},
                                             {"--text", "a", "--number", "0x3", "--flag=true"},
                                             {"-text", "b", "-text=a", "--number=+3", "-flag=T"},
                                             {"-text=a", "-number=0b11", "--flag=1", "--"}}) {
    const Parsed parsed = Parse(arguments);
    ASSERT_OK(parsed.outcome);
    EXPECT_EQ(*parsed.outcome, GoFlags::Outcome::kRun);
    EXPECT_EQ(parsed.text, "a");
    EXPECT_EQ(parsed.number, 3);
    EXPECT_TRUE(parsed.flag);
  }
  EXPECT_EQ(Parse({"-text="}).text, "");
  EXPECT_EQ(Parse({"-text=a=b"}).text, "a=b");
  // The next argument is the value, whatever it looks like.
  EXPECT_EQ(Parse({"-text", "-flag"}).text, "-flag");
  EXPECT_FALSE(Parse({"-text", "-flag"}).flag);
  EXPECT_FALSE(Parse({"-flag", "-flag=false"}).flag);
}

TEST(GoFlags, SayWhatIsWrongInGosWords) {
  EXPECT_EQ(ErrorOf({"-unknown"}), "flag provided but not defined: -unknown");
  EXPECT_EQ(ErrorOf({"--unknown=1"}), "flag provided but not defined: -unknown");
  EXPECT_EQ(ErrorOf({"-number"}), "flag needs an argument: -number");
  EXPECT_EQ(ErrorOf({"-number=x"}), "invalid value \"x\" for flag -number: parse error");
  EXPECT_EQ(ErrorOf({"-flag=yes"}), "invalid value \"yes\" for flag -flag: parse error");
  EXPECT_EQ(ErrorOf({"---flag"}), "bad flag syntax: ---flag");
  EXPECT_EQ(ErrorOf({"-=1"}), "bad flag syntax: -=1");
  EXPECT_EQ(ErrorOf({"word"}), "unexpected argument: word");
  EXPECT_EQ(ErrorOf({"-flag", "false"}), "unexpected argument: false");
  EXPECT_EQ(ErrorOf({"-"}), "unexpected argument: -");
  EXPECT_EQ(ErrorOf({""}), "unexpected argument: ");
  EXPECT_EQ(ErrorOf({"--", "-flag"}), "unexpected argument: -flag");
}

TEST(GoFlags, HelpIsAFlagOfItsOwn) {
  for (const char* help : {"-h", "--h", "-help", "--help"}) {
    const Parsed parsed = Parse({"-number=3", help, "-unknown"});
    ASSERT_OK(parsed.outcome);
    EXPECT_EQ(*parsed.outcome, GoFlags::Outcome::kHelp);
  }
}

TEST(GoFlags, Integers) {
  EXPECT_EQ(*ParseGoInt("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(*ParseGoInt("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(*ParseGoInt("1_000"), 1000);
  EXPECT_EQ(*ParseGoInt("0x_ff"), 255);
  EXPECT_EQ(*ParseGoInt("0o17"), 15);
  EXPECT_EQ(*ParseGoInt("017"), 15);
  EXPECT_EQ(*ParseGoInt("0"), 0);
  for (const char* bad : {"", "-", "1.0", "1e3", " 1", "1_", "_1", "1__0", "0x", "08", "0b2",
                          "9223372036854775808", "-9223372036854775809", "99999999999999999999"}) {
    EXPECT_FALSE(ParseGoInt(bad).ok()) << bad;
  }
}

TEST(GoFlags, Durations) {
  EXPECT_EQ(*ParseGoDuration("1m"), milliseconds(60'000));
  EXPECT_EQ(*ParseGoDuration("1h2m3.5s"), milliseconds(3'723'500));
  EXPECT_EQ(*ParseGoDuration("-1.5h"), milliseconds(-5'400'000));
  EXPECT_EQ(*ParseGoDuration("300ms"), milliseconds(300));
  EXPECT_EQ(*ParseGoDuration("2000us"), milliseconds(2));
  EXPECT_EQ(*ParseGoDuration("2000\xc2\xb5s"), milliseconds(2));
  EXPECT_EQ(*ParseGoDuration("1ns"), milliseconds(1));  // not zero
  EXPECT_EQ(*ParseGoDuration("0"), milliseconds(0));
  EXPECT_EQ(*ParseGoDuration("0s"), milliseconds(0));
  EXPECT_EQ(*ParseGoDuration(".5s"), milliseconds(500));
  for (const char* bad : {"", "1", "s", "1x", "1m 2s", "1..5s", ".s", "-", "1e3s", "9999999h"}) {
    EXPECT_FALSE(ParseGoDuration(bad).ok()) << bad;
  }
}

TEST(GoFlags, Floats) {
  EXPECT_EQ(*ParseGoFloat("5"), 5);
  EXPECT_EQ(*ParseGoFloat("+2.5"), 2.5);
  EXPECT_EQ(*ParseGoFloat("1e2"), 100);
  for (const char* bad : {"", "x", "1x", "inf", "nan", "1e999"}) {
    EXPECT_FALSE(ParseGoFloat(bad).ok()) << bad;
  }
}

TEST(GoFlags, TheHelpTextHasDefaults) {
  std::string text = "default";
  milliseconds time = std::chrono::minutes(1);
  GoFlags flags;
  flags.Add("time", &time, "A time");
  flags.Add("text", &text, "A text", "FILE");
  EXPECT_EQ(flags.Usage(),
            "  --text FILE\n        A text (default default)\n"
            "  --time duration\n        A time (default 1m)\n");
}

}  // namespace go_flags_test
}  // namespace cbt::cli

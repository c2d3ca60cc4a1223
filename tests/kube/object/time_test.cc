#include <gtest/gtest.h>

#include "cbt/kube/object.h"
#include "tests/support/status.h"

namespace cbt::kube {
namespace time_test {

using test::ValueOf;

TEST(TimeTest, ReadsAndWrites) {
  const Time time = ValueOf(ParseTime("2024-02-29T23:59:58.123456Z"));
  EXPECT_EQ(FormatMicroTime(time), "2024-02-29T23:59:58.123456Z");
  EXPECT_EQ(FormatTime(time), "2024-02-29T23:59:58Z");
  EXPECT_EQ(time.time_since_epoch().count(), 1709251198123456);
  EXPECT_EQ(FormatMicroTime(Time()), "1970-01-01T00:00:00.000000Z");
}

TEST(TimeTest, OffsetsFractionsAndCases) {
  const Time noon = ValueOf(ParseTime("2024-05-01T12:00:00Z"));
  EXPECT_EQ(ValueOf(ParseTime("2024-05-01T14:30:00+02:30")), noon);
  EXPECT_EQ(ValueOf(ParseTime("2024-05-01T09:00:00-03:00")), noon);
  EXPECT_EQ(ValueOf(ParseTime("2024-05-01t12:00:00z")), noon);
  EXPECT_EQ(ValueOf(ParseTime("2024-05-01T12:00:00.5Z")), noon + std::chrono::milliseconds(500));
  // Finer than a microsecond.
  EXPECT_EQ(ValueOf(ParseTime("2024-05-01T12:00:00.000000999Z")), noon);
  // Go's zero.
  EXPECT_EQ(FormatTime(ValueOf(ParseTime("0001-01-01T00:00:00Z"))), "0001-01-01T00:00:00Z");
  EXPECT_EQ(FormatTime(ValueOf(ParseTime("9999-12-31T23:59:59Z"))), "9999-12-31T23:59:59Z");
  // A leap second.
  EXPECT_OK(ParseTime("2016-12-31T23:59:60Z"));
}

TEST(TimeTest, RefusesWhatIsNoTime) {
  for (const char* const text :
       {"", "2024", "2024-05-01", "2024-05-01T12:00Z", "2024-05-01T12:00:00",
        "2024-02-30T12:00:00Z", "2024-13-01T12:00:00Z", "2024-05-01T24:00:00Z",
        "2024-05-01T12:60:00Z", "2024-05-01T12:00:61Z", "2024-05-01T12:00:00.Z",
        "2024-05-01T12:00:00Zx", "2024-05-01T12:00:00+2", "2024-05-01 12:00:00Z",
        "24-05-01T12:00:00Z", "2024-05-01T12:00:00+25:00", "+024-05-01T12:00:00Z"}) {
    EXPECT_EQ(ParseTime(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace time_test
}  // namespace cbt::kube

// gRPC's encodings in HTTP/2: values from the documents, every value of small domains, and round
// trips.
#include "rpc/http2/protocol.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/percent.h"
#include "tests/support/seeded_random.h"

namespace cbt::rpc::http2 {
namespace protocol_test {

using absl::StatusCode;
using std::chrono::hours;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(Timeout, IsReadInEveryUnit) {
  EXPECT_EQ(ParseTimeout("1n"), nanoseconds(1));
  EXPECT_EQ(ParseTimeout("20u"), nanoseconds(20'000));
  EXPECT_EQ(ParseTimeout("300m"), nanoseconds(300'000'000));
  EXPECT_EQ(ParseTimeout("4S"), seconds(4));
  EXPECT_EQ(ParseTimeout("5M"), std::chrono::minutes(5));
  EXPECT_EQ(ParseTimeout("6H"), hours(6));
  EXPECT_EQ(ParseTimeout("00000001S"), seconds(1));
  EXPECT_EQ(ParseTimeout("0S"), nanoseconds(0));
  EXPECT_EQ(ParseTimeout("99999999n"), nanoseconds(99'999'999));
}

TEST(Timeout, BeyondWhatTheClockHoldsIsItsMaximum) {
  constexpr int64_t kMaxHours = INT64_MAX / 3'600'000'000'000;
  EXPECT_EQ(ParseTimeout(std::to_string(kMaxHours) + "H"), nanoseconds(hours(kMaxHours)));
  EXPECT_EQ(ParseTimeout(std::to_string(kMaxHours + 1) + "H"), nanoseconds::max());
  EXPECT_EQ(ParseTimeout("99999999H"), nanoseconds::max());
  EXPECT_EQ(ParseTimeout("99999999M"), std::chrono::minutes(99'999'999));
}

TEST(Timeout, OtherTextIsRefused) {
  for (const char* text : {"", "S", "1", "1s", "1 S", "-1S", "+1S", "1.5S", "123456789S", "1SS",
                           "S1", "0x1S", " 1S", "1S ", "1h", "1N"}) {
    EXPECT_EQ(ParseTimeout(text), std::nullopt) << text;
  }
  EXPECT_EQ(ParseTimeout(std::string_view("1\0S", 3)), std::nullopt);
}

TEST(Timeout, IsWrittenInAtMostEightDigitsAndNeverShorter) {
  EXPECT_EQ(FormatTimeout(nanoseconds(0)), "1n");
  EXPECT_EQ(FormatTimeout(nanoseconds::min()), "1n");
  EXPECT_EQ(FormatTimeout(nanoseconds(99'999'999)), "99999999n");
  EXPECT_EQ(FormatTimeout(nanoseconds(100'000'000)), "100000u");
  EXPECT_EQ(FormatTimeout(nanoseconds(100'000'001)), "100001u");
  test::SeededRandom random(1);
  for (int i = 0; i < 100'000; ++i) {
    const nanoseconds time(static_cast<int64_t>(random() >> (1 + i % 63)));
    const std::string text = FormatTimeout(time);
    ASSERT_LE(text.size(), 9U) << time.count();
    const std::optional<nanoseconds> back = ParseTimeout(text);
    ASSERT_TRUE(back.has_value()) << text;
    ASSERT_GE(*back, time) << text;
    ASSERT_LE((*back - time).count(), time.count() / 1000 + 1) << text;
  }
  EXPECT_EQ(ParseTimeout(FormatTimeout(nanoseconds::max())), nanoseconds::max());
}

TEST(StatusText, BrokenEscapesStayAsTheyAre) {
  for (const char* text : {"%", "%4", "%G1", "%1G", "%%", "a%", "%-1", "% 1", "%\xff\xff"}) {
    EXPECT_EQ(PercentDecode(text, BrokenEscapes::kKept), text);
  }
  EXPECT_EQ(PercentDecode("%%41", BrokenEscapes::kKept), "%A");
}

TEST(BinaryValue, ExamplesOfRfc4648) {
  const char* const texts[] = {"", "f", "fo", "foo", "foob", "fooba", "foobar"};
  const char* const padded[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
  for (int i = 0; i < 7; ++i) {
    std::string bare = padded[i];
    while (bare.ends_with('=')) bare.pop_back();
    EXPECT_EQ(Base64Encode(texts[i]), bare);
    EXPECT_EQ(Base64Decode(bare), texts[i]);
    EXPECT_EQ(Base64Decode(padded[i]), texts[i]);
  }
  EXPECT_EQ(Base64Encode("\xfb\xff\xbe"), "+/++");
}

TEST(BinaryValue, OtherTextIsRefused) {
  for (const char* text : {"A", "AAAAA", "A===", "====", "=",
                           "==", "Zg=", "Zg===", "Zm8==", "Zm9v=", "Zm9v====", "Z g=", "Zh==", "Zh",
                           "Zm9", "Zg=a", "Zm-_", "Zg,Zg", "\xff\xff"}) {
    EXPECT_EQ(Base64Decode(text), std::nullopt) << text;
  }
}

// With and without padding; each value has one form.
TEST(BinaryValue, IsReadBack) {
  test::SeededRandom random(2);
  for (int i = 0; i < 5'000; ++i) {
    std::string bytes(random() % 50, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    std::string value = Base64Encode(bytes);
    EXPECT_EQ(Base64Decode(value), bytes);
    std::string other = value;
    if (!other.empty()) other[random() % other.size()] ^= static_cast<char>(1 + random() % 127);
    EXPECT_TRUE(other == value || Base64Decode(other) != bytes) << other;
    value.append(-value.size() % 4, '=');
    EXPECT_EQ(Base64Decode(value), bytes);
  }
  EXPECT_TRUE(IsBinaryKey("x-bin"));
  EXPECT_FALSE(IsBinaryKey("bin"));
  EXPECT_FALSE(IsBinaryKey("x-bin-y"));
}

TEST(StatusCodes, OnlyZeroIsOk) {
  for (int code = 0; code <= 16; ++code) {
    EXPECT_EQ(ParseStatusCode(std::to_string(code)), static_cast<StatusCode>(code));
  }
  for (const char* text : {"", "00", "000", "01", "17", "99", "100", "256", "4294967296", "-0",
                           "+0", " 0", "0 ", "0x0", "O", "OK", "0,0"}) {
    EXPECT_EQ(ParseStatusCode(text), StatusCode::kUnknown) << text;
  }
  EXPECT_EQ(ParseStatusCode(std::string_view("0\0", 2)), StatusCode::kUnknown);
}

TEST(StatusCodes, OfHttpStatusesNeverOk) {
  EXPECT_EQ(CodeOfHttpStatus(400), StatusCode::kInternal);
  EXPECT_EQ(CodeOfHttpStatus(401), StatusCode::kUnauthenticated);
  EXPECT_EQ(CodeOfHttpStatus(403), StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeOfHttpStatus(404), StatusCode::kUnimplemented);
  EXPECT_EQ(CodeOfHttpStatus(429), StatusCode::kUnavailable);
  EXPECT_EQ(CodeOfHttpStatus(431), StatusCode::kInternal);
  EXPECT_EQ(CodeOfHttpStatus(502), StatusCode::kUnavailable);
  EXPECT_EQ(CodeOfHttpStatus(503), StatusCode::kUnavailable);
  EXPECT_EQ(CodeOfHttpStatus(504), StatusCode::kUnavailable);
  EXPECT_EQ(CodeOfHttpStatus(200), StatusCode::kUnknown);
  EXPECT_EQ(CodeOfHttpStatus(500), StatusCode::kUnknown);
  for (int status = -1; status < 1100; ++status) {
    EXPECT_NE(CodeOfHttpStatus(status), StatusCode::kOk) << status;
  }
}

TEST(StatusCodes, OfResetsNeverOk) {
  EXPECT_EQ(CodeOfReset(0), StatusCode::kInternal);
  EXPECT_EQ(CodeOfReset(1), StatusCode::kInternal);
  EXPECT_EQ(CodeOfReset(7), StatusCode::kUnavailable);
  EXPECT_EQ(CodeOfReset(8), StatusCode::kCancelled);
  EXPECT_EQ(CodeOfReset(11), StatusCode::kResourceExhausted);
  EXPECT_EQ(CodeOfReset(12), StatusCode::kPermissionDenied);
  for (uint32_t error = 0; error < 300; ++error) EXPECT_NE(CodeOfReset(error), StatusCode::kOk);
  EXPECT_EQ(CodeOfReset(UINT32_MAX), StatusCode::kInternal);
  for (int code = 1; code <= 16; ++code) {
    const uint32_t error = ResetOfCode(static_cast<StatusCode>(code));
    EXPECT_NE(error, 0U) << code;
    EXPECT_NE(error, 7U) << code;
  }
  EXPECT_EQ(ResetOfCode(StatusCode::kCancelled), 8U);
  EXPECT_EQ(ResetName(0), "NO_ERROR");
  EXPECT_EQ(ResetName(7), "REFUSED_STREAM");
  EXPECT_EQ(ResetName(13), "HTTP_1_1_REQUIRED");
  EXPECT_EQ(ResetName(14), "error 14");
}

TEST(ContentType, OfGrpc) {
  for (const char* text : {"application/grpc", "application/grpc+proto", "application/grpc+json",
                           "application/grpc;charset=utf-8", "Application/GRPC"}) {
    EXPECT_TRUE(IsGrpcContentType(text)) << text;
  }
  for (const char* text : {"", "application/grp", "application/grpc-web", "application/grpcx",
                           "text/html", " application/grpc", "application/json"}) {
    EXPECT_FALSE(IsGrpcContentType(text)) << text;
  }
}

TEST(Prefix, IsBigEndian) {
  const auto prefix = MessagePrefix(0x01fe03ff);
  EXPECT_EQ(std::string(prefix.begin(), prefix.end()), std::string("\0\x01\xfe\x03\xff", 5));
}

}  // namespace protocol_test
}  // namespace cbt::rpc::http2

// The small parts of the client: limits on requests, lines of streams, URLs, headers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "kube/client/answer.h"
#include "kube/client/endpoint.h"
#include "kube/client/line_splitter.h"
#include "kube/client/requests.h"
#include "kube/client/token_bucket.h"
#include "tests/support/status.h"

namespace cbt::kube {
namespace parts_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::ValueOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// The body is what an edited copy of the object would be, for objects with and without a type.
TEST(RequestBodyTest, LikeAnEditedCopy) {
  const std::string metadata =
      R"("metadata":{"name":"a","namespace":"ns","resourceVersion":"7",)"
      R"("managedFields":[{"manager":"m"}],"labels":{"managedFields":"kept"}})";
  const std::vector<std::string> heads = {"", R"("apiVersion":"v9","kind":"Mine",)",
                                          R"("apiVersion":"","kind":null,)",
                                          R"("kind":"ConfigMap",)", R"("apiVersion":5,)"};
  for (const std::string& head : heads) {
    for (const std::string& rest : {std::string(), std::string(R"(,"data":{"k\"":"\u0001v"})")}) {
      const Object object = ValueOf(Object::Parse("{" + head + metadata + rest + "}"));
      Object typed = object;
      if (typed.api_version().empty()) typed.SetString({"apiVersion"}, "v1");
      if (typed.kind().empty()) typed.SetString({"kind"}, "ConfigMap");
      const ApiRequest created = ValueOf(CreateRequest(kConfigMaps, object, {}));
      EXPECT_EQ(created.wire.body.Reveal(), typed.ToJson());
      EXPECT_EQ(ValueOf(UpdateRequest(kConfigMaps, object, {})).wire.body.Reveal(), typed.ToJson());
      ApplyOptions options;
      options.field_manager = "m";
      typed.Remove({"metadata", "managedFields"});
      EXPECT_EQ(ValueOf(ApplyRequest(kConfigMaps, object, options)).wire.body.Reveal(),
                typed.ToJson());
    }
  }
}

TEST(TokenBucketTest, BurstThenRate) {
  TokenBucket::Clock::time_point now{seconds(1000)};
  TokenBucket bucket(10, 3, now);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bucket.Take(now)) << i;
  EXPECT_FALSE(bucket.Take(now));
  EXPECT_EQ(std::chrono::round<milliseconds>(bucket.Next(now) - now), milliseconds(100));
  int taken = 0;
  for (int i = 0; i < 10'000; ++i) {
    now += milliseconds(1);
    if (bucket.Take(now)) ++taken;
  }
  EXPECT_NEAR(taken, 100, 1);
  // A pause fills it, and no more than to the brim.
  now += seconds(3600);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bucket.Take(now)) << i;
  EXPECT_FALSE(bucket.Take(now));
  // The moment that it names is the right one.
  now = bucket.Next(now);
  EXPECT_TRUE(bucket.Take(now));
}

TEST(TokenBucketTest, NoLimit) {
  const TokenBucket::Clock::time_point now{};
  TokenBucket bucket(0, 1, now);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(bucket.Take(now));
}

std::vector<std::string> Split(const std::string& text, size_t piece, size_t max_line,
                               absl::Status& status) {
  LineSplitter splitter(max_line);
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size() && status.ok(); at += piece) {
    status = splitter.Add(std::string_view(text).substr(at, piece), [&](std::string_view line) {
      lines.emplace_back(line);
      return absl::OkStatus();
    });
  }
  if (splitter.in_line()) lines.emplace_back("...");
  return lines;
}

TEST(LineSplitterTest, PiecesOfEverySize) {
  for (size_t piece = 1; piece <= 12; ++piece) {
    absl::Status status;
    EXPECT_THAT(Split("ab\n\ncde\nf\n", piece, 3, status), ElementsAre("ab", "cde", "f"));
    EXPECT_OK(status);
    EXPECT_THAT(Split("ab\ncd", piece, 3, status), ElementsAre("ab", "..."));
    EXPECT_OK(status);
    Split("ab\ncdef\n", piece, 3, status);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << piece;
  }
}

TEST(LineSplitterTest, AnErrorStopsIt) {
  LineSplitter splitter(10);
  int lines = 0;
  const absl::Status status = splitter.Add("a\nb\nc\n", [&](std::string_view) {
    return ++lines == 2 ? absl::DataLossError("no") : absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(lines, 2);
}

TEST(EndpointTest, Urls) {
  Config config;
  config.server = "https://example.com:6443/prefix/";
  Endpoint endpoint = ValueOf(ParseEndpoint(config));
  EXPECT_EQ(endpoint.base_url, "https://example.com:6443/prefix");
  EXPECT_TRUE(endpoint.tls);
  EXPECT_EQ(endpoint.connect_to, "");
  config.server = "https://[::1]";
  EXPECT_EQ(ValueOf(ParseEndpoint(config)).base_url, "https://[::1]:443");
  config.server = "https://10.0.0.1:6443";
  config.tls_server_name = "kubernetes.default";
  endpoint = ValueOf(ParseEndpoint(config));
  EXPECT_EQ(endpoint.base_url, "https://kubernetes.default:6443");
  EXPECT_EQ(endpoint.connect_to, "kubernetes.default:6443:10.0.0.1:6443");
  EXPECT_EQ(endpoint.host_header, "Host: 10.0.0.1:6443");
}

TEST(EndpointTest, RefusesOthersWithoutQuotingThem) {
  for (const char* const server :
       {"", "example.com", "ftp://example.com", "https://", "https://user:hunter2@example.com",
        "https://example.com/?token=hunter2", "https://example.com/#x", "https://a b",
        "https://example.com:99999"}) {
    Config config;
    config.server = server;
    const absl::Status status = ParseEndpoint(config).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << server;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("hunter2")));
  }
}

TEST(RetryAfterTest, SecondsAndDates) {
  EXPECT_EQ(ParseRetryAfter("7", 0), seconds(7));
  EXPECT_EQ(ParseRetryAfter("0", 0), seconds(0));
  EXPECT_EQ(ParseRetryAfter("-1", 0), std::nullopt);
  EXPECT_EQ(ParseRetryAfter("soon", 0), std::nullopt);
  EXPECT_EQ(ParseRetryAfter("", 0), std::nullopt);
  EXPECT_EQ(ParseRetryAfter("99999999999999", 0), std::chrono::hours(24));
  EXPECT_EQ(ParseRetryAfter("Wed, 01 May 2024 12:00:10 GMT", 1714564800), seconds(10));
  EXPECT_EQ(ParseRetryAfter("Wed, 01 May 2024 12:00:10 GMT", 1800000000), seconds(0));
}

}  // namespace parts_test
}  // namespace cbt::kube

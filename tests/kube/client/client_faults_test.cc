// A server that breaks its answers in every way: no failure looks like an answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/kube/client.h"
#include "cbt/kube/status.h"
#include "tests/kube/support/scripted_server.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt::kube {
namespace client_faults_test {

using std::chrono::milliseconds;
using test::ConfigMapJson;
using test::ScriptedAnswer;
using test::ScriptedRequest;
using test::ScriptedServer;
using test::ValueOf;

std::unique_ptr<Client> Impatient(const ScriptedServer& server) {
  ClientOptions options;
  options.qps = 0;
  options.max_retries = 0;
  options.timeout = std::chrono::seconds(20);
  return ValueOf(Client::Create(server.config(), options));
}

// Every byte is a place where a connection may break.
TEST(ClientFaultsTest, AnswersCutAtEveryByte) {
  for (const ScriptedAnswer::Framing framing :
       {ScriptedAnswer::Framing::kLength, ScriptedAnswer::Framing::kChunked}) {
    ScriptedAnswer whole{.body = ConfigMapJson("ns", "a", std::string(40, 'v')),
                         .framing = framing};
    const size_t size = test::WireBytes(whole).size();
    size_t cut = 0;
    const ScriptedServer server([&](const ScriptedRequest&) {
      ScriptedAnswer answer = whole;
      answer.cut_after = cut;
      answer.end = ScriptedAnswer::End::kClose;
      return answer;
    });
    const auto client = Impatient(server);
    // The last chunk is complete without the empty line that follows it.
    const size_t needed = framing == ScriptedAnswer::Framing::kChunked ? size - 2 : size;
    for (cut = 0; cut < needed; ++cut) {
      const absl::Status status = client->Get(kConfigMaps, "ns", "a").status();
      ASSERT_EQ(status.code(), absl::StatusCode::kUnavailable)
          << "cut at " << cut << ": " << status;
    }
    cut = size;
    EXPECT_OK(client->Get(kConfigMaps, "ns", "a"));
  }
}

TEST(ClientFaultsTest, AnAnswerWithoutALengthIsRefused) {
  const ScriptedServer server([&](const ScriptedRequest&) -> ScriptedAnswer {
    return {.body = ConfigMapJson("ns", "a", "v"),
            .framing = ScriptedAnswer::Framing::kNone,
            .end = ScriptedAnswer::End::kClose};
  });
  EXPECT_EQ(Impatient(server)->Get(kConfigMaps, "ns", "a").status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(ClientFaultsTest, BrokenHttp) {
  const std::string body = ConfigMapJson("ns", "a", "v");
  const std::string length = absl::StrCat("Content-Length: ", body.size(), "\r\n");
  std::string raw;
  const ScriptedServer server([&](const ScriptedRequest&) -> ScriptedAnswer {
    return {.raw = raw, .end = ScriptedAnswer::End::kClose};
  });
  const auto client = Impatient(server);
  for (const std::string& text : std::vector<std::string>{
           "",
           "hello",
           "\r\n\r\n",
           "HTTP/1.1\r\n\r\n",
           "HTTP/9.9 200 OK\r\n" + length + "\r\n" + body,
           "HTTP/1.1 abc OK\r\n" + length + "\r\n" + body,
           "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n" + body,
           "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n" + body,
           "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n" + body,
           absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", body.size() + 1, "\r\n\r\n", body),
           absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", body.size() - 1, "\r\n\r\n", body),
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body,
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + body,
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + body,
           absl::StrCat("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                        absl::Hex(body.size()), "\r\n", body),
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n" + body,
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n" + body,
           "HTTP/1.1 100 Continue\r\n\r\n",
           "HTTP/1.1 204 No Content\r\n\r\n",
           "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
           "HTTP/1.1 304 Not Modified\r\n\r\n"}) {
    raw = text;
    const absl::Status status = client->Get(kConfigMaps, "ns", "a").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable)
        << status << " for " << text.substr(0, 80);
  }
  raw = "HTTP/1.1 200 OK\r\nX: " + std::string(500'000, 'x') + "\r\n" + length + "\r\n" + body;
  EXPECT_EQ(client->Get(kConfigMaps, "ns", "a").status().code(),
            absl::StatusCode::kResourceExhausted);
  raw = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n" + length + "\r\n" + body;
  EXPECT_OK(client->Get(kConfigMaps, "ns", "a")) << "an answer after an interim one";
  // Trailers are not a head (LB): those of HTTP change nothing, another head is no end.
  const std::string chunked = absl::StrCat("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                                           absl::Hex(body.size()), "\r\n", body, "\r\n0\r\n");
  raw = chunked + "X-Status: HTTP/1.1 404 Not Found\r\n\r\n";
  EXPECT_OK(client->Get(kConfigMaps, "ns", "a"));
  raw = chunked + "HTTP/1.1 404 Not Found\r\n\r\n";
  EXPECT_EQ(client->Get(kConfigMaps, "ns", "a").status().code(), absl::StatusCode::kUnavailable);
}

TEST(ClientFaultsTest, HeadersWithoutEnd) {
  std::string raw = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 20'000; ++i)
    absl::StrAppend(&raw, "X-", i, ": ", std::string(100, 'x'), "\r\n");
  const ScriptedServer server([&](const ScriptedRequest&) -> ScriptedAnswer {
    return {.raw = raw, .end = ScriptedAnswer::End::kHang};
  });
  EXPECT_EQ(Impatient(server)->Send({.path = "/"}).status().code(), absl::StatusCode::kUnavailable);
}

TEST(ClientFaultsTest, SlowAnswersInSmallPieces) {
  const ScriptedServer server([&](const ScriptedRequest& request) -> ScriptedAnswer {
    return {.body = ConfigMapJson("ns", "a", "v"),
            .framing = request.number % 2 == 0 ? ScriptedAnswer::Framing::kChunked
                                               : ScriptedAnswer::Framing::kLength,
            .delay_ms = 20,
            .piece = 3};
  });
  const auto client = Impatient(server);
  for (int i = 0; i < 2; ++i) EXPECT_OK(client->Get(kConfigMaps, "ns", "a"));
}

// Any single byte of an answer may be another.
TEST(ClientFaultsTest, AChangedByteIsNoticedOrHarmless) {
  const std::string body = ConfigMapJson("ns", "a", "v");
  test::SeededRandom random(20240501);
  std::string sent;
  const ScriptedServer server(
      [&](const ScriptedRequest&) -> ScriptedAnswer { return {.body = sent}; });
  const auto client = Impatient(server);
  for (int i = 0; i < 300; ++i) {
    sent = body;
    sent[random() % sent.size()] = static_cast<char>(random());
    const absl::StatusOr<Object> object = client->Get(kConfigMaps, "ns", "a");
    if (!object.ok()) {
      ASSERT_EQ(object.status().code(), absl::StatusCode::kUnavailable) << sent;
      continue;
    }
    // Then it is the object that was asked for all the same.
    ASSERT_EQ(object->name(), "a");
    ASSERT_EQ(object->name_space(), "ns");
    ASSERT_EQ(object->kind(), "ConfigMap");
  }
}

TEST(ClientFaultsTest, ErrorsWithStrangeBodies) {
  std::string body;
  const ScriptedServer server(
      [&](const ScriptedRequest&) -> ScriptedAnswer { return {.code = 403, .body = body}; });
  const auto client = Impatient(server);
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("null"), std::string("[]"),
        std::string(R"({"kind":"Status","message":5,"reason":[],"details":"x"})"),
        std::string(R"({"kind":"Status","details":{"retryAfterSeconds":"soon"}})"),
        std::string(R"({"kind":"Status","details":{"retryAfterSeconds":-5}})"),
        std::string(2'000'000, 'x'), std::string(100'000, '['),
        R"({"kind":"Status","message":")" + std::string(100'000, 'm') + "\"}"}) {
    body = text;
    const absl::Status status = client->Send({.path = "/"}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(RetryAfterOf(status), std::nullopt);
    EXPECT_FALSE(status.message().empty());
    EXPECT_LT(status.message().size(), 1100U);
  }
}

}  // namespace client_faults_test
}  // namespace cbt::kube

// The rules of gRPC's HTTP/2 mapping for a server, frame by frame; and gRPC's own client.
#include "rpc/http2/server.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cbt/units.h"
#include "tests/rpc/http2/raw_client.h"
#include "tests/rpc/http2/test_service.h"

namespace cbt::rpc::http2 {
namespace server_test {

using std::chrono::milliseconds;
using test::Fields;
using test::Framed;
using test::RawClient;
using test::Request;
using test::TestServer;

// The answer to a request with changed headers.
RawClient::Answer Ask(const TestServer& server, const Fields& fields,
                      const std::string& body = Framed("x")) {
  RawClient client(server.path);
  client.Headers(1, fields);
  client.Data(1, body, true);
  return client.Read(1);
}

Fields With(Fields fields, const std::string& name, const std::string& value) {
  for (auto& [key, old] : fields) {
    if (key == name) {
      old = value;
      return fields;
    }
  }
  fields.emplace_back(name, value);
  return fields;
}

TEST(HttpServer, AnswersWithHeadersDataAndTrailers) {
  const TestServer server;
  const auto answer = Ask(server, Request("/t/Echo"), Framed("one") + Framed("") + Framed("three"));
  EXPECT_TRUE(answer.ended);
  EXPECT_EQ(answer.headers, 2);
  EXPECT_EQ(answer.fields.at(":status"), "200");
  EXPECT_EQ(answer.fields.at("content-type"), "application/grpc");
  EXPECT_EQ(answer.status(), "0");
  EXPECT_EQ(answer.fields.count("grpc-message"), 0U);
  EXPECT_EQ(answer.fields.at("x-end"), "yes");
  EXPECT_EQ(answer.fields.at("x-bytes-bin"), "AP8");
  EXPECT_EQ(answer.body, Framed("one") + Framed("") + Framed("three"));
}

TEST(HttpServer, EncodesTheStatusText) {
  const TestServer server;
  const auto answer = Ask(server, Request("/t/Fail"));
  EXPECT_EQ(answer.status(), "9");
  EXPECT_EQ(answer.fields.at("grpc-message"), "100%25 of %C3%BC%0Alines");
  EXPECT_EQ(answer.fields.at("x-begin"), "first");
}

// nghttp2 refuses overlong trailers; the call would never end.
TEST(HttpServer, ReadsAfterTheEndReturnAtOnceAndLongTextsAreCut) {
  const TestServer server;
  const auto answer = Ask(server, Request("/t/ReadOn"), Framed("one"));
  EXPECT_TRUE(answer.ended);
  EXPECT_EQ(answer.status(), "5");
  EXPECT_EQ(answer.fields.at("grpc-message"), std::string(1024, 'x'));
}

TEST(HttpServer, RefusesWithTrailersOnly) {
  const TestServer server;
  const auto refused = [&](const Fields& fields, const std::string& http, const std::string& code) {
    const auto answer = Ask(server, fields);
    EXPECT_TRUE(answer.ended);
    EXPECT_EQ(answer.headers, 1);
    EXPECT_EQ(answer.body, "");
    EXPECT_EQ(answer.fields.at(":status"), http);
    EXPECT_EQ(answer.status(), code);
    return answer;
  };
  const Fields right = Request("/t/Echo");
  refused(Request("/t/Refuse"), "200", "7");
  refused(Request("/t/Unknown"), "200", "12");
  refused(With(right, ":method", "GET"), "405", "13");
  refused(With(right, "content-type", "text/html"), "415", "13");
  refused(With(right, "content-type", "application/grpcx"), "415", "13");
  refused(With(right, "grpc-timeout", "1x"), "200", "13");
  refused(With(With(right, "x-long", std::string(8'100, 'x')), "x-more", std::string(8'100, 'y')),
          "200", "8");
  const auto packed = refused(With(right, "grpc-encoding", "gzip"), "200", "12");
  EXPECT_EQ(packed.fields.at("grpc-accept-encoding"), "identity");
  Fields without = right;
  without.erase(without.begin() + 4);
  refused(without, "400", "13");
  EXPECT_EQ(server.counts.opened, 0);
  for (const char* type : {"application/grpc+proto", "application/grpc;x=y"}) {
    EXPECT_EQ(Ask(server, With(right, "content-type", type)).status(), "0");
  }
  EXPECT_EQ(Ask(server, With(right, "grpc-encoding", "identity")).status(), "0");
}

TEST(HttpServer, RefusesBrokenMessages) {
  const TestServer server;
  const Fields echo = Request("/t/Echo");
  EXPECT_EQ(Ask(server, echo, Framed("x", 1)).status(), "12");
  EXPECT_EQ(Ask(server, echo, Framed("x", 2)).status(), "13");
  EXPECT_EQ(Ask(server, echo, Framed("xyz").substr(0, 6)).status(), "13");
  EXPECT_EQ(Ask(server, echo, Framed("xyz").substr(0, 3)).status(), "13");
  std::string announced = Framed("xyz");
  announced[2] = 1;  // 65 KiB and more
  announced[4] = 1;
  EXPECT_EQ(Ask(server, echo, announced).status(), "8");
  // A call without a request.
  EXPECT_EQ(Ask(server, echo, "").status(), "3");
  EXPECT_EQ(server.counts.opened, 0);
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
}

TEST(HttpServer, CallsWaitUntilTheirRequestIsWhole) {
  const TestServer server;
  RawClient client(server.path);
  for (const uint32_t stream : {1U, 3U, 5U}) {
    client.Headers(stream, Request("/t/Echo"));
    client.Data(stream, Framed("xyz").substr(0, 6), false);
  }
  EXPECT_TRUE(TestServer::Soon([&] { return server.server->waiting() == 3; }));
  EXPECT_EQ(server.counts.opened, 0);
  client.Data(1, "yz", true);
  EXPECT_EQ(client.Read(1).body, Framed("xyz"));
  EXPECT_EQ(server.server->waiting(), 2U);
  client.Reset(3);
  EXPECT_TRUE(TestServer::Soon([&] { return server.server->waiting() == 1; }));
  client.Data(5, "y", true);
  EXPECT_EQ(client.Read(5).status(), "13");
  EXPECT_EQ(server.server->waiting(), 0U);
}

TEST(HttpServer, LongestMessagePassesItsWindow) {
  const TestServer server;
  RawClient client(server.path);
  const std::string message(64 * kKiB, 'm');
  // The server's windows apply once its settings are acknowledged.
  client.Send(test::Frame(NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, ""));
  client.Headers(1, Request("/t/Echo"));
  const std::string framed = Framed(message);
  for (size_t at = 0; at < framed.size(); at += 16'000) {
    client.Data(1, framed.substr(at, 16'000), at + 16'000 >= framed.size());
  }
  client.Window(0, kMiB);
  client.Window(1, kMiB);
  const auto answer = client.Read(1);
  EXPECT_EQ(answer.status(), "0");
  EXPECT_EQ(answer.body, framed);
}

TEST(HttpServer, EndsACallAtItsDeadline) {
  const TestServer server;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(Ask(server, With(Request("/t/Hold"), "grpc-timeout", "50m")).status(), "4");
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(49));
  EXPECT_EQ(server.counts.cancelled, 1);
  EXPECT_EQ(Ask(server, With(Request("/t/Hold"), "grpc-timeout", "0n")).status(), "4");
}

TEST(HttpServer, ResetCancelsTheCall) {
  const TestServer server;
  RawClient client(server.path);
  client.Call(1, "/t/Hold", "x");
  ASSERT_TRUE(TestServer::Soon([&] { return server.counts.open == 1; }));
  client.Reset(1);
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
  EXPECT_EQ(server.counts.cancelled, 1);
  client.Call(3, "/t/Echo", "y");
  EXPECT_EQ(client.Read(3).status(), "0");
}

TEST(HttpServer, LostConnectionCancelsTheCall) {
  const TestServer server;
  {
    RawClient client(server.path);
    client.Call(1, "/t/Hold", "x");
    client.Headers(3, Request("/t/Echo"));
    client.Data(3, Framed("x") + "\1", false);
    ASSERT_TRUE(TestServer::Soon([&] { return server.counts.open == 2; }));
  }
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
  EXPECT_TRUE(TestServer::Soon([&] { return server.server->connections() == 0; }));
}

// The answer is complete before the request: the client need not send the rest.
TEST(HttpServer, EndsTheRequestOfAnEndedCall) {
  const TestServer server;
  RawClient client(server.path);
  client.Headers(1, Request("/t/Fail"));
  client.Data(1, Framed("x"), false);
  EXPECT_EQ(client.Read(1).status(), "9");
  const auto reset = client.Await(NGHTTP2_RST_STREAM, 1);
  ASSERT_TRUE(reset.has_value());
  EXPECT_EQ(reset->Number(), uint32_t{NGHTTP2_NO_ERROR});
}

TEST(HttpServer, SendsWithinAnyWindow) {
  for (const uint32_t window : {1U, 7U, 1000U}) {
    const TestServer server;
    RawClient client(server.path);
    client.Settings({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0}});
    client.Call(1, "/t/Stream", "3 100");
    std::string body;
    bool ended = false;
    while (!ended) {
      const auto frame = client.Next(milliseconds(body.empty() ? 200 : 2000));
      if (!frame.has_value() || frame->type == NGHTTP2_HEADERS) {
        ASSERT_FALSE(client.ended());
        ended = frame.has_value() && frame->end();
        if (!ended) client.Window(1, window);
      } else if (frame->type == NGHTTP2_DATA) {
        ASSERT_LE(frame->payload.size(), window);
        body += frame->payload;
        client.Window(1, window);
      }
    }
    EXPECT_EQ(body, Framed(std::string(100, 'a')) + Framed(std::string(100, 'b')) +
                        Framed(std::string(100, 'c')));
  }
}

// A zero connection window blocks its streams, and nothing else.
TEST(HttpServer, WritesStopAtTheWindow) {
  const TestServer server;
  RawClient client(server.path);
  client.Call(1, "/t/Stream", "1000000 1000");
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.writes >= 60; }));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_LE(server.counts.writes, 66);
  RawClient other(server.path);
  other.Call(1, "/t/Echo", "x");
  EXPECT_EQ(other.Read(1).status(), "0");
}

TEST(HttpServer, ManyStreamsOfOneConnection) {
  const TestServer server;
  RawClient client(server.path);
  constexpr uint32_t kStreams = 100;
  for (uint32_t i = 0; i < kStreams; ++i) client.Headers(1 + 2 * i, Request("/t/Echo"));
  for (uint32_t i = 0; i < kStreams; ++i) {
    client.Data(1 + 2 * i, Framed("m" + std::to_string(i)), true);
  }
  uint32_t ended = 0;
  while (ended < kStreams) {
    const auto frame = client.Next();
    ASSERT_TRUE(frame.has_value());
    if (frame->type == NGHTTP2_HEADERS) client.Decode(*frame);
    if (frame->type == NGHTTP2_DATA && !frame->payload.empty()) {
      EXPECT_EQ(frame->payload, Framed("m" + std::to_string(frame->stream / 2)));
    }
    if (frame->end()) ++ended;
  }
}

// ---- shutdown

TEST(HttpServer, ShutdownWithoutCallsIsQuick) {
  TestServer server;
  RawClient idle(server.path);
  idle.Call(1, "/t/Echo", "x");
  EXPECT_EQ(idle.Read(1).status(), "0");
  const auto begin = std::chrono::steady_clock::now();
  server.server->Shutdown(std::chrono::seconds(30));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_TRUE(idle.Await(NGHTTP2_GOAWAY).has_value());
  EXPECT_TRUE(idle.AwaitEnd());
}

TEST(HttpServer, ShutdownWaitsForCallsAndThenCancels) {
  TestServer server;
  RawClient client(server.path);
  client.Call(1, "/t/Hold", "x");
  ASSERT_TRUE(TestServer::Soon([&] { return server.counts.open == 1; }));
  const auto begin = std::chrono::steady_clock::now();
  server.server->Shutdown(milliseconds(300));
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, milliseconds(300));
  EXPECT_LT(took, milliseconds(300 + 2000));
  EXPECT_EQ(server.counts.open, 0);
  EXPECT_EQ(server.counts.cancelled, 1);
}

// ---- gRPC's own client

using ByteStream = grpc::ClientAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

struct GrpcAnswer {
  std::vector<std::string> messages;
  grpc::Status status;
};

GrpcAnswer GrpcCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                    const std::vector<std::string>& requests, milliseconds timeout) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  grpc::CompletionQueue queue;
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const std::unique_ptr<ByteStream> call = stub.PrepareCall(&context, path, &queue);
  call->StartCall(nullptr);
  GrpcAnswer answer;
  bool good = wait();
  for (size_t i = 0; good && i < requests.size(); ++i) {
    const grpc::Slice slice(requests[i]);
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    good = wait();
  }
  call->WritesDone(nullptr);
  wait();
  for (;;) {
    grpc::ByteBuffer message;
    call->Read(&message, nullptr);
    if (!wait()) break;
    grpc::Slice whole;
    message.DumpToSingleSlice(&whole);
    answer.messages.emplace_back(reinterpret_cast<const char*>(whole.begin()), whole.size());
  }
  call->Finish(&answer.status, nullptr);
  wait();
  return answer;
}

TEST(HttpServer, ServesGrpcsClient) {
  const TestServer server;
  const auto channel =
      grpc::CreateChannel("unix:" + server.path, grpc::InsecureChannelCredentials());
  constexpr milliseconds kLong = std::chrono::seconds(20);
  const auto echo = GrpcCall(channel, "/t/Echo", {"a", "", std::string(60'000, 'b')}, kLong);
  EXPECT_EQ(echo.status.error_code(), grpc::OK) << echo.status.error_message();
  EXPECT_EQ(echo.messages, (std::vector<std::string>{"a", "", std::string(60'000, 'b')}));
  for (const char* path : {"/t/Stream", "/t/ThreadStream"}) {
    const auto stream = GrpcCall(channel, path, {"100 100000"}, kLong);
    EXPECT_EQ(stream.status.error_code(), grpc::OK) << stream.status.error_message();
    ASSERT_EQ(stream.messages.size(), 100U);
    EXPECT_EQ(stream.messages[27], std::string(100'000, 'b'));
  }
  const auto failed = GrpcCall(channel, "/t/Fail", {"x"}, kLong);
  EXPECT_EQ(failed.status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_EQ(failed.status.error_message(), "100% of \xc3\xbc\nlines");
  EXPECT_EQ(GrpcCall(channel, "/t/Refuse", {"x"}, kLong).status.error_code(),
            grpc::PERMISSION_DENIED);
  EXPECT_EQ(GrpcCall(channel, "/t/Nothing", {"x"}, kLong).status.error_code(), grpc::UNIMPLEMENTED);
  EXPECT_EQ(GrpcCall(channel, "/t/Echo", {std::string(70'000, 'x')}, kLong).status.error_code(),
            grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(GrpcCall(channel, "/t/Hold", {"x"}, milliseconds(100)).status.error_code(),
            grpc::DEADLINE_EXCEEDED);
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
}

}  // namespace server_test
}  // namespace cbt::rpc::http2

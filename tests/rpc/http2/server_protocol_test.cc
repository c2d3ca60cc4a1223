// The rules of gRPC's HTTP/2 mapping, and of HTTP/2 where gRPC depends on them, tested on a server
// frame by frame. tests/rpc/conformance/protocol.csv lists them.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "rpc/http2/server.h"
#include "tests/rpc/http2/raw_client.h"
#include "tests/rpc/http2/test_service.h"

namespace cbt::rpc::http2 {
namespace server_protocol_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Fields;
using test::Frame;
using test::Framed;
using test::Literals;
using test::RawClient;
using test::Request;
using test::TestServer;

constexpr seconds kLong{20};
constexpr uint8_t kEndHeaders = NGHTTP2_FLAG_END_HEADERS;

Fields And(Fields fields, const Fields& more) {
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

RawClient::Answer Ask(RawClient& client, uint32_t stream, const Fields& fields,
                      const std::string& body) {
  client.Headers(stream, fields);
  client.Data(stream, body, true);
  return client.Read(stream);
}

// Checks that the connection's next stream is served.
void ExpectUsable(RawClient& client, uint32_t stream) {
  EXPECT_EQ(Ask(client, stream, Request("/t/Echo"), Framed("next")).body, Framed("next"));
}

// ---- requests

TEST(ServerProtocol, TimeoutsInEveryUnit) {
  const TestServer server;
  RawClient client(server.path);
  uint32_t stream = 1;
  const auto ask = [&](const char* method, const char* timeout) {
    const auto answer =
        Ask(client, stream, And(Request(method), {{"grpc-timeout", timeout}}), Framed("x"));
    stream += 2;
    return answer.status();
  };
  for (const char* past : {"1n", "1u", "1m", "0S"}) EXPECT_EQ(ask("/t/Hold", past), "4") << past;
  for (const char* far : {"99999999m", "60S", "10M", "99999999H"}) {
    EXPECT_EQ(ask("/t/Echo", far), "0") << far;
  }
  for (const char* wrong : {"", "5", "S", "123456789S", "-1S", "1.5S", "1s", "1 S"}) {
    EXPECT_EQ(ask("/t/Echo", wrong), "13") << wrong;
  }
}

// Names that browsers, tracers and later gRPC versions send.
TEST(ServerProtocol, MetadataOfTheClientIsPassedOver) {
  const TestServer server;
  RawClient client(server.path);
  const Fields fields = And(Request("/t/Echo"), {{"x-custom", "1"},
                                                 {"x-custom", "2"},
                                                 {"x-bytes-bin", "AAE"},
                                                 {"x-padded-bin", "AAE="},
                                                 {"x-broken-bin", "!"},
                                                 {"grpc-trace-bin", "AAA"},
                                                 {"grpc-previous-rpc-attempts", "1"},
                                                 {"grpc-accept-encoding", "gzip,identity"},
                                                 {"user-agent", "x"}});
  EXPECT_EQ(Ask(client, 1, fields, Framed("x")).status(), "0");
}

// HTTP/2 calls these malformed: the stream is reset, and the connection stays.
TEST(ServerProtocol, MalformedHeadersResetTheirStream) {
  const TestServer server;
  RawClient client(server.path);
  const auto without = [](const char* name) {
    Fields fields = Request("/t/Echo");
    std::erase_if(fields, [&](const auto& field) { return field.first == name; });
    return fields;
  };
  const Fields right = Request("/t/Echo");
  const std::pair<const char*, Fields> malformed[] = {
      {"no method", without(":method")},
      {"no scheme", without(":scheme")},
      {"no path", without(":path")},
      {"path twice", And({{":path", "/t/Echo"}}, right)},
      {"pseudo-header after a field", And(without(":path"), {{":path", "/t/Echo"}})},
      {"upper case", And(right, {{"X-Custom", "1"}})},
      {"of a connection", And(right, {{"connection", "close"}})},
      {"unknown pseudo-header", And({{":status", "200"}}, right)},
      {"authority twice", And({{":authority", "x"}}, right)},
      {"path without a slash", And({{":path", "t/Echo"}}, without(":path"))},
      {"path with a line feed", And({{":path", "/t/Echo\n"}}, without(":path"))},
      {"te is not trailers", And(without("te"), {{"te", "gzip"}})},
      {"transfer-encoding", And(right, {{"transfer-encoding", "chunked"}})},
      {"length twice", And(right, {{"content-length", "0"}, {"content-length", "0"}})},
  };
  uint32_t stream = 1;
  for (const auto& [what, fields] : malformed) {
    client.Headers(stream, fields, true);
    const auto reset = client.Await(NGHTTP2_RST_STREAM, stream, kLong);
    ASSERT_TRUE(reset.has_value()) << what;
    EXPECT_EQ(reset->Number(), uint32_t{NGHTTP2_PROTOCOL_ERROR}) << what;
    stream += 2;
  }
  EXPECT_EQ(server.counts.opened, 0);
  ExpectUsable(client, stream);
}

// kubelet before 1.26, grpc-java and csc send the socket's path, nothing, or no such field over
// Unix sockets.
TEST(ServerProtocol, ZAAnyAuthorityIsServed) {
  const TestServer server;
  RawClient client(server.path);
  uint32_t stream = 1;
  for (const char* const authority :
       {"", "/csi/csi.sock", "%2Fcsi%2Fcsi.sock", "unix:///csi/csi.sock", "a b", "h:1"}) {
    Fields fields = Request("/t/Echo");
    for (auto& [name, value] : fields) {
      if (name == ":authority") value = authority;
    }
    EXPECT_EQ(Ask(client, stream, fields, Framed("x")).status(), "0") << authority;
    stream += 2;
  }
  Fields without = Request("/t/Echo");
  std::erase_if(without, [](const auto& field) { return field.first == ":authority"; });
  EXPECT_EQ(Ask(client, stream, without, Framed("x")).status(), "0");
  EXPECT_EQ(
      Ask(client, stream + 2, And(without, {{"host", "/csi/csi.sock"}}), Framed("x")).status(),
      "0");
}

// A body is as long as its client says.
TEST(ServerProtocol, ZAContentLengthsAreKept) {
  const TestServer server;
  RawClient client(server.path);
  const auto ask = [&](uint32_t stream, const char* length) {
    return Ask(client, stream, And(Request("/t/Echo"), {{"content-length", length}}), Framed("x"));
  };
  EXPECT_EQ(ask(1, "6").status(), "0");
  uint32_t stream = 3;
  for (const char* const wrong : {"5", "7", "0", "", "6x", "-6", "99999999999999999999"}) {
    EXPECT_EQ(ask(stream, wrong).reset, NGHTTP2_PROTOCOL_ERROR) << wrong;
    stream += 2;
  }
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
  ExpectUsable(client, stream);
}

// A header block may be split, padded and carry a priority.
TEST(ServerProtocol, HeadersOfEveryShape) {
  const TestServer server;
  RawClient client(server.path);
  const std::string block = Literals(Request("/t/Echo"));
  for (uint32_t stream = 1; stream < 21; stream += 2) {
    const size_t cut = stream * block.size() / 21;
    client.Send(Frame(NGHTTP2_HEADERS, 0, stream, block.substr(0, cut)));
    client.Send(Frame(NGHTTP2_CONTINUATION, 0, stream, ""));
    client.Send(Frame(NGHTTP2_CONTINUATION, kEndHeaders, stream, block.substr(cut)));
    client.Data(stream, Framed("x"), true);
    EXPECT_EQ(client.Read(stream).status(), "0") << cut;
  }
  client.Send(Frame(NGHTTP2_HEADERS, kEndHeaders | NGHTTP2_FLAG_PADDED, 21,
                    std::string("\x03") + block + std::string(3, '\0')));
  client.Data(21, Framed("x"), true);
  EXPECT_EQ(client.Read(21).status(), "0");
  client.Send(Frame(NGHTTP2_HEADERS, kEndHeaders | NGHTTP2_FLAG_PRIORITY, 23,
                    std::string("\0\0\0\0\x10", 5) + block));
  client.Data(23, Framed("x"), true);
  EXPECT_EQ(client.Read(23).status(), "0");
}

// ---- messages

TEST(ServerProtocol, MessagesAndFramesAreIndependent) {
  const TestServer server;
  const std::string body = Framed("first") + Framed("") + Framed(std::string(300, 'm'));
  uint32_t stream = 1;
  RawClient client(server.path);
  for (const size_t piece : {size_t{1}, size_t{4}, size_t{5}, size_t{6}, size_t{7}, body.size()}) {
    client.Headers(stream, Request("/t/Echo"));
    for (size_t at = 0; at < body.size(); at += piece) {
      // Padded, and with empty frames between.
      const std::string part = body.substr(at, piece);
      client.Send(Frame(NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, stream,
                        std::string("\x02") + part + std::string(2, '\0')));
      if (at % 16 == 0) client.Data(stream, "", false);
    }
    client.Data(stream, "", true);
    const auto answer = client.Read(stream);
    EXPECT_EQ(answer.status(), "0") << piece;
    EXPECT_EQ(answer.body, body) << piece;
    stream += 2;
  }
}

TEST(ServerProtocol, ARequestMayEndWithItsHeadersOrWithTrailers) {
  const TestServer server;
  RawClient client(server.path);
  client.Headers(1, Request("/t/Echo"), true);
  EXPECT_EQ(client.Read(1).status(), "3");  // without a request
  client.Headers(3, Request("/t/Echo"));
  client.Data(3, Framed("x"), false);
  client.Headers(3, {{"x-trailer", "1"}}, true);
  const auto trailed = client.Read(3);
  EXPECT_EQ(trailed.status(), "0");
  EXPECT_EQ(trailed.body, Framed("x"));
  // Trailers within a message end it, too.
  client.Headers(5, Request("/t/Echo"));
  client.Data(5, Framed("xyz").substr(0, 6), false);
  client.Headers(5, {{"x-trailer", "1"}}, true);
  EXPECT_EQ(client.Read(5).status(), "13");
  // Headers that are neither the first nor the last.
  client.Headers(7, Request("/t/Hold"));
  client.Headers(7, {{"x-middle", "1"}});
  const auto reset = client.Await(NGHTTP2_RST_STREAM, 7, kLong);
  ASSERT_TRUE(reset.has_value());
  EXPECT_EQ(reset->Number(), uint32_t{NGHTTP2_PROTOCOL_ERROR});
  ExpectUsable(client, 9);
}

// A silent cancellation: END_STREAM never comes.
TEST(ServerProtocol, AMessageIsServedBeforeTheRequestEnds) {
  const TestServer server;
  RawClient client(server.path);
  client.Headers(1, Request("/t/Echo"));
  client.Data(1, Framed("one"), false);
  const auto frame = client.Await(NGHTTP2_DATA, 1, kLong);
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->payload, Framed("one"));
  client.Reset(1);
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
  ExpectUsable(client, 3);
}

// ---- errors

TEST(ServerProtocol, ADeadlineThatCantBeSaidInTrailersResetsTheStream) {
  const TestServer server;
  RawClient client(server.path);
  client.Settings({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0}});
  client.Headers(1, And(Request("/t/Stuck"), {{"grpc-timeout", "50m"}}));
  client.Data(1, Framed("x"), true);
  const auto reset = client.Await(NGHTTP2_RST_STREAM, 1, kLong);
  ASSERT_TRUE(reset.has_value());
  EXPECT_EQ(reset->Number(), uint32_t{NGHTTP2_CANCEL});
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
}

TEST(ServerProtocol, ResetsOfEveryCodeEndTheCallAndNothingElse) {
  const TestServer server;
  RawClient client(server.path);
  uint32_t stream = 1;
  client.Call(stream, "/t/Hold", "stays");
  const int before = 1;
  for (const uint32_t code : {0U, 1U, 2U, 7U, 8U, 11U, 12U, 99U}) {
    stream += 2;
    client.Call(stream, "/t/Hold", "x");
    ASSERT_TRUE(TestServer::Soon([&] { return server.counts.open == before + 1; })) << code;
    client.Reset(stream, code);
    ASSERT_TRUE(TestServer::Soon([&] { return server.counts.open == before; })) << code;
  }
  EXPECT_EQ(server.counts.cancelled, 8);
  ExpectUsable(client, stream + 2);
  EXPECT_EQ(server.counts.open, 1);
}

// A client that does not know the limit yet may retry; one that has acknowledged it violates
// HTTP/2.
TEST(ServerProtocol, StreamsAboveTheLimitAreRefused) {
  ServerLimits limits;
  limits.connection.max_streams = 2;
  const TestServer server(limits);
  RawClient client(server.path);
  for (uint32_t stream = 1; stream <= 5; stream += 2) client.Call(stream, "/t/Hold", "x");
  const auto refused = client.Await(NGHTTP2_RST_STREAM, 5, kLong);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->Number(), uint32_t{NGHTTP2_REFUSED_STREAM});
  client.Reset(1);
  ASSERT_TRUE(TestServer::Soon([&] { return server.counts.open == 1; }));
  ExpectUsable(client, 7);
  client.Send(Frame(NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, ""));
  for (uint32_t stream = 9; stream <= 11; stream += 2) client.Call(stream, "/t/Hold", "x");
  const auto goaway = client.Await(NGHTTP2_GOAWAY, 0, kLong);
  ASSERT_TRUE(goaway.has_value());
  EXPECT_EQ(goaway->Number(4), uint32_t{NGHTTP2_PROTOCOL_ERROR});
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
}

TEST(ServerProtocol, WindowsThatAreOverrunAreErrors) {
  const TestServer server;
  RawClient client(server.path);
  client.Send(Frame(NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, ""));
  client.Headers(1, Request("/t/Hold"));
  const std::string piece(16'000, '\0');
  for (int i = 0; i < 100 && client.Data(1, piece, false); ++i) {
  }
  // An error of the stream, or of the connection.
  bool ended = false;
  while (!ended) {
    const auto frame = client.Next(kLong);
    if (!frame.has_value()) break;
    if (frame->type == NGHTTP2_HEADERS) client.Decode(*frame);
    ended = (frame->type == NGHTTP2_RST_STREAM && frame->Number() == NGHTTP2_FLOW_CONTROL_ERROR) ||
            (frame->type == NGHTTP2_GOAWAY && frame->Number(4) == NGHTTP2_FLOW_CONTROL_ERROR);
  }
  EXPECT_TRUE(ended);
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
}

// ---- the connection

TEST(ServerProtocol, FramesThatBreakHttp2EndTheConnection) {
  const std::tuple<const char*, std::string, uint32_t> broken[] = {
      {"too long", Frame(NGHTTP2_DATA, 0, 1, std::string(16'385, 'x')), NGHTTP2_FRAME_SIZE_ERROR},
      {"stream 0", Frame(NGHTTP2_DATA, 0, 0, "x"), NGHTTP2_PROTOCOL_ERROR},
      {"even stream", Frame(NGHTTP2_HEADERS, kEndHeaders, 2, Literals(Request("/t/Echo"))),
       NGHTTP2_PROTOCOL_ERROR},
      {"idle stream", Frame(NGHTTP2_RST_STREAM, 0, 9, test::Number(8)), NGHTTP2_PROTOCOL_ERROR},
      {"push", Frame(NGHTTP2_PUSH_PROMISE, kEndHeaders, 1, test::Number(2)),
       NGHTTP2_PROTOCOL_ERROR},
      {"lone continuation", Frame(NGHTTP2_CONTINUATION, kEndHeaders, 1, ""),
       NGHTTP2_PROTOCOL_ERROR},
      {"short ping", Frame(NGHTTP2_PING, 0, 0, "1234567"), NGHTTP2_FRAME_SIZE_ERROR},
      {"bad block", Frame(NGHTTP2_HEADERS, kEndHeaders, 3, "\xff\xff\xff\xff\xff\xff"),
       NGHTTP2_COMPRESSION_ERROR},
      {"window overflow", Frame(NGHTTP2_WINDOW_UPDATE, 0, 0, test::Number(0x7fffffff)),
       NGHTTP2_FLOW_CONTROL_ERROR},
  };
  const TestServer server;
  for (const auto& [what, frame, code] : broken) {
    RawClient client(server.path);
    client.Call(1, "/t/Hold", "x");
    client.Send(frame);
    const auto goaway = client.Await(NGHTTP2_GOAWAY, 0, kLong);
    ASSERT_TRUE(goaway.has_value()) << what;
    EXPECT_EQ(goaway->Number(4), code) << what;
    EXPECT_TRUE(client.AwaitEnd(kLong)) << what;
  }
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
  RawClient other(server.path);
  ExpectUsable(other, 1);
}

TEST(ServerProtocol, UnknownFramesFlagsAndSettingsAreIgnored) {
  const TestServer server;
  RawClient client(server.path);
  client.Settings({{0x99, 1}, {0xf000, 0x7fffffff}});
  client.Send(Frame(0x42, 0xff, 0, "strange"));
  client.Headers(1, Request("/t/Echo"));
  client.Send(Frame(0x42, 0xff, 1, "strange"));
  client.Send(Frame(NGHTTP2_DATA, 0x70, 1, Framed("one")));
  client.Send(Frame(0xee, 0, 1, ""));
  client.Data(1, Framed("two"), true);
  const auto answer = client.Read(1);
  EXPECT_EQ(answer.status(), "0");
  EXPECT_EQ(answer.body, Framed("one") + Framed("two"));
}

TEST(ServerProtocol, SettingsAreAcknowledgedAndPingsAnswered) {
  const TestServer server;
  RawClient client(server.path, false);
  client.Send(std::string(NGHTTP2_CLIENT_MAGIC) + Frame(NGHTTP2_SETTINGS, 0, 0, "") +
              Frame(NGHTTP2_PING, 0, 0, "payload!"));
  int settings = 0;
  int acknowledged = 0;
  bool first = true;
  std::string pong;
  while (settings == 0 || acknowledged == 0 || pong.empty()) {
    const auto frame = client.Next(kLong);
    ASSERT_TRUE(frame.has_value());
    const bool ack = (frame->flags & NGHTTP2_FLAG_ACK) != 0;
    // The server's preface.
    if (std::exchange(first, false)) {
      EXPECT_EQ(frame->type, NGHTTP2_SETTINGS);
      EXPECT_FALSE(ack);
    }
    if (frame->type == NGHTTP2_SETTINGS) ++(ack ? acknowledged : settings);
    if (frame->type == NGHTTP2_PING && ack) pong = frame->payload;
  }
  EXPECT_EQ(pong, "payload!");
  EXPECT_EQ(settings, 1);
  EXPECT_EQ(acknowledged, 1);
}

TEST(ServerProtocol, OpenStreamsEndAfterTheClientsGoaway) {
  const TestServer server;
  RawClient client(server.path);
  client.Headers(1, Request("/t/Echo"));
  client.Data(1, Framed("one"), false);
  client.Send(Frame(NGHTTP2_GOAWAY, 0, 0, test::Number(0) + test::Number(0)));
  client.Data(1, Framed("two"), true);
  const auto answer = client.Read(1);
  EXPECT_EQ(answer.status(), "0");
  EXPECT_EQ(answer.body, Framed("one") + Framed("two"));
}

// The first GOAWAY excludes nothing. The last stream's number follows after a round trip, so that
// requests in flight are served.
TEST(ServerProtocol, DrainingSaysWhichStreamWasTheLast) {
  TestServer server;
  RawClient client(server.path);
  client.Call(1, "/t/Hold", "x");
  ASSERT_TRUE(TestServer::Soon([&] { return server.counts.open == 1; }));
  // Joins on every way out of this test.
  const std::jthread drain([&] { server.server->Shutdown(kLong); });
  std::optional<test::RawFrame> notice;
  std::optional<test::RawFrame> ping;
  while (!notice.has_value() || !ping.has_value()) {
    auto frame = client.Next(kLong);
    ASSERT_TRUE(frame.has_value());
    if (frame->type == NGHTTP2_GOAWAY)
      notice = std::move(frame);
    else if (frame->type == NGHTTP2_PING)
      ping = std::move(frame);
  }
  EXPECT_EQ(notice->Number(), 0x7fffffffU);
  EXPECT_EQ(notice->Number(4), uint32_t{NGHTTP2_NO_ERROR});
  // From now on, streams are refused in a way that shows that they were not processed.
  client.Call(3, "/t/Echo", "late");
  const auto refused = client.Await(NGHTTP2_RST_STREAM, 3, kLong);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->Number(), uint32_t{NGHTTP2_REFUSED_STREAM});
  client.Send(Frame(NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, ping->payload));
  const auto last = client.Await(NGHTTP2_GOAWAY, 0, kLong);
  ASSERT_TRUE(last.has_value());
  EXPECT_LE(last->Number(), 3U);
  EXPECT_GE(last->Number(), 1U);
  // The open call continues until its client ends it.
  EXPECT_EQ(server.counts.open, 1);
  client.Reset(1);
  EXPECT_TRUE(client.AwaitEnd(kLong));
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
}

}  // namespace server_protocol_test
}  // namespace cbt::rpc::http2

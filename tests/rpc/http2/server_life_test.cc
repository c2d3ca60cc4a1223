// How a server's connections begin and end: addresses, age, idle time, and clients that send GOAWAY
// or frames that a gRPC client would not.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <string>

#include "net/acceptor.h"
#include "rpc/http2/channel.h"
#include "rpc/http2/server.h"
#include "tests/rpc/http2/collector.h"
#include "tests/rpc/http2/raw_client.h"
#include "tests/rpc/http2/test_service.h"

namespace cbt::rpc::http2 {
namespace server_life_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Collector;
using test::Frame;
using test::Framed;
using test::Literals;
using test::RawClient;
using test::Request;
using test::TestServer;
using Clock = std::chrono::steady_clock;

std::string GoodBye() {
  return Frame(NGHTTP2_GOAWAY, 0, 0, test::Number(0) + test::Number(NGHTTP2_NO_ERROR));
}

bool HasIPv6() {
  std::ifstream list("/proc/net/if_inet6");
  return list.peek() != std::ifstream::traits_type::eof();
}

TEST(ServerLife, ListensAndIsReachedOnIPv6) {
  if (!HasIPv6()) GTEST_SKIP() << "no interface has an IPv6 address";
  test::CallCounts counts;
  test::TestService service(counts);
  const auto server = test::ValueOf(Server::Start(
      {.is_unix = false, .path = {}, .host = "::1", .port = 0}, {}, {&service}, {}, {}));
  EXPECT_NE(server->address().port, 0);
  EXPECT_EQ(server->address().ToString(), "[::1]:" + std::to_string(server->address().port));
  const auto parsed = test::ValueOf(net::ParseAddress(server->address().ToString()));
  const auto channel = test::ValueOf(MakeChannel(parsed, {}));
  Collector got;
  const auto call = channel->NewCall(std::nullopt);
  call->Start("/t/Stream", "20 10000", got);
  EXPECT_OK(got.Await());
  EXPECT_EQ(got.messages().size(), 20U);
  // Two servers must never share a port.
  test::TestService other(counts);
  EXPECT_TRUE(
      absl::IsFailedPrecondition(Server::Start(server->address(), {}, {&other}, {}, {}).status()));
}

// Before anything else can set the mode: no other user may connect in between.
TEST(ServerLife, ZAAUnixSocketIsNeverWiderThanItsMode) {
  const test::TempDir dir;
  net::Address address = {.is_unix = true, .path = dir / "s", .host = {}, .port = 0};
  const mode_t before = umask(0);
  const auto sockets = net::ListenAt(address);
  umask(before);
  ASSERT_OK(sockets);
  struct stat status = {};
  ASSERT_EQ(stat(address.path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, mode_t{0660});
}

// After a client's GOAWAY, open streams finish and then the connection ends.
TEST(ServerLife, GoawayOfAClientLetsItsStreamsEnd) {
  const TestServer server;
  RawClient client(server.path);
  client.Settings({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 100}});
  client.Call(1, "/t/Stream", "3 1000");
  ASSERT_TRUE(TestServer::Soon([&] { return server.counts.open == 1; }));
  client.Send(GoodBye());
  client.Window(1, 100'000);
  const auto answer = client.Read(1);
  EXPECT_EQ(answer.status(), "0");
  EXPECT_EQ(answer.body.size(), 3U * 1005);
  EXPECT_TRUE(client.AwaitEnd());
  EXPECT_TRUE(TestServer::Soon([&] { return server.server->connections() == 0; }));
}

TEST(ServerLife, GoawayOfAClientWithoutStreamsEndsTheConnection) {
  const TestServer server;
  RawClient client(server.path);
  client.Call(1, "/t/Echo", "x");
  EXPECT_EQ(client.Read(1).status(), "0");
  client.Send(GoodBye());
  EXPECT_TRUE(client.AwaitEnd());
}

// No gRPC client sends trailers; HTTP/2 allows them.
TEST(ServerLife, TrailersOfAClientAreTheEndOfItsRequest) {
  const TestServer server;
  RawClient client(server.path);
  client.Headers(1, Request("/t/Echo"));
  client.Data(1, Framed("x"), false);
  client.Headers(1, {{"x-checksum", "1"}}, true);
  const auto answer = client.Read(1);
  EXPECT_EQ(answer.status(), "0");
  EXPECT_EQ(answer.body, Framed("x"));
  EXPECT_EQ(answer.reset, -1);
  // A message cut by them is an error.
  client.Headers(3, Request("/t/Echo"));
  client.Data(3, Framed("xyz").substr(0, 6), false);
  client.Headers(3, {{"x-checksum", "1"}}, true);
  EXPECT_EQ(client.Read(3).status(), "13");
  // After trailers, without END_STREAM, or with request fields, they violate HTTP/2.
  client.Headers(5, Request("/t/Hold"));
  client.Headers(5, {{"x-checksum", "1"}});
  EXPECT_EQ(client.Read(5).reset, NGHTTP2_PROTOCOL_ERROR);
  client.Headers(7, Request("/t/Hold"));
  client.Headers(7, {{":path", "/t/Echo"}}, true);
  EXPECT_EQ(client.Read(7).reset, NGHTTP2_PROTOCOL_ERROR);
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
  client.Call(9, "/t/Echo", "y");
  EXPECT_EQ(client.Read(9).status(), "0");
}

TEST(ServerLife, AnOldConnectionWithoutStreamsIsShutDown) {
  ServerLimits limits;
  limits.connection.max_age = milliseconds(300);
  const TestServer server(limits);
  const auto begin = Clock::now();
  RawClient client(server.path);
  client.Call(1, "/t/Echo", "x");
  EXPECT_EQ(client.Read(1).status(), "0");
  const auto goaway = client.Await(NGHTTP2_GOAWAY, 0, seconds(20));
  ASSERT_TRUE(goaway.has_value());
  EXPECT_EQ(goaway->Number(4), uint32_t{NGHTTP2_NO_ERROR});
  // At most a tenth less.
  EXPECT_GE(Clock::now() - begin, milliseconds(265));
  EXPECT_TRUE(client.AwaitEnd(seconds(20)));
}

// Open calls get the same time again.
TEST(ServerLife, AnOldConnectionWithStreamsHasTimeToEnd) {
  ServerLimits limits;
  limits.connection.max_age = milliseconds(500);
  const TestServer server(limits);
  const auto begin = Clock::now();
  RawClient client(server.path);
  client.Call(1, "/t/Hold", "x");
  ASSERT_TRUE(client.Await(NGHTTP2_GOAWAY, 0, seconds(20)).has_value());
  EXPECT_EQ(server.counts.open, 1);
  // A call in flight is served until the last GOAWAY names the last stream.
  EXPECT_TRUE(client.AwaitEnd(seconds(20)));
  EXPECT_GE(Clock::now() - begin, milliseconds(890));
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
  EXPECT_EQ(server.counts.cancelled, 1);
}

TEST(ServerLife, AStreamOfAnOldConnectionThatEndsInTimeIsWhole) {
  ServerLimits limits;
  limits.connection.max_age = milliseconds(500);
  const TestServer server(limits);
  RawClient client(server.path);
  client.Settings({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 10}});
  client.Call(1, "/t/Stream", "2 1000");
  ASSERT_TRUE(client.Await(NGHTTP2_GOAWAY, 0, seconds(20)).has_value());
  client.Window(1, 100'000);
  std::string status;
  while (const auto frame = client.Next()) {
    if (frame->type != NGHTTP2_HEADERS) continue;
    const auto fields = client.Decode(*frame);
    if (frame->end()) status = fields.at("grpc-status");
  }
  // On a busy machine the connection's time may run out first, which must not be OK.
  EXPECT_TRUE(client.ended());
  EXPECT_TRUE(status == "0" || status.empty()) << status;
}

TEST(ServerLife, AnIdleConnectionIsShutDown) {
  ServerLimits limits;
  limits.connection.idle_time = milliseconds(200);
  const TestServer server(limits);
  const auto begin = Clock::now();
  RawClient idle(server.path);
  RawClient busy(server.path);
  busy.Call(1, "/t/Hold", "x");
  ASSERT_TRUE(idle.Await(NGHTTP2_GOAWAY, 0, seconds(20)).has_value());
  EXPECT_GE(Clock::now() - begin, milliseconds(199));
  EXPECT_TRUE(idle.AwaitEnd(seconds(20)));
  // A connection with a stream is not idle, however long it is silent.
  EXPECT_FALSE(busy.AwaitEnd(milliseconds(500)));
  EXPECT_EQ(server.counts.open, 1);
  busy.Reset(1);
  EXPECT_TRUE(busy.AwaitEnd(seconds(20)));
}

}  // namespace server_life_test
}  // namespace cbt::rpc::http2

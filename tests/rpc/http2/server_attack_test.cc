// Hostile peers: each is disconnected, or bounded in time and memory, while others are served.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <vector>

#include "cbt/units.h"
#include "rpc/http2/server.h"
#include "tests/rpc/http2/raw_client.h"
#include "tests/rpc/http2/test_service.h"

namespace cbt::rpc::http2 {
namespace server_attack_test {

using std::chrono::milliseconds;
using test::Frame;
using test::Framed;
using test::Literals;
using test::RawClient;
using test::Request;
using test::TestServer;

void ExpectServes(const TestServer& server) {
  RawClient other(server.path);
  other.Call(1, "/t/Echo", "still here");
  EXPECT_EQ(other.Read(1).status(), "0");
}

// Expects GOAWAY with this code, or the end alone if GOAWAY was lost in the flood.
void ExpectEnded(RawClient& client, uint32_t code) {
  if (const auto goaway = client.Await(NGHTTP2_GOAWAY); goaway.has_value()) {
    EXPECT_EQ(goaway->Number(4), code);
  }
  EXPECT_TRUE(client.AwaitEnd());
}

TEST(ServerAttack, RapidResetEndsTheConnection) {
  const TestServer server;
  RawClient client(server.path);
  for (uint32_t i = 0; i < 1000; ++i) {
    if (!client.Headers(1 + 2 * i, Request("/t/Hold")) || !client.Reset(1 + 2 * i)) break;
  }
  ExpectEnded(client, NGHTTP2_ENHANCE_YOUR_CALM);
  EXPECT_LE(server.counts.opened, 250);
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
  ExpectServes(server);
}

TEST(ServerAttack, RequestsThatAreResetAsTheyArriveAreNeverOpened) {
  const TestServer server;
  RawClient client(server.path);
  std::string frames;
  for (uint32_t i = 0; i < 20; ++i) {
    const uint32_t stream = 1 + 2 * i;
    frames +=
        Frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, stream, Literals(Request("/t/Hold")));
    frames += Frame(NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, stream, Framed("x"));
    frames += Frame(NGHTTP2_RST_STREAM, 0, stream, test::Number(NGHTTP2_CANCEL));
  }
  // In one piece.
  ASSERT_TRUE(client.Send(frames));
  client.Call(41, "/t/Echo", "x");
  EXPECT_EQ(client.Read(41).status(), "0");
  EXPECT_EQ(server.counts.opened, 1);
}

// The peer provokes resets: a zero window update is a stream error.
TEST(ServerAttack, ProvokedResetsEndTheConnection) {
  const TestServer server;
  RawClient client(server.path);
  for (uint32_t i = 0; i < 1000; ++i) {
    if (!client.Headers(1 + 2 * i, Request("/t/Hold")) || !client.Window(1 + 2 * i, 0)) break;
  }
  EXPECT_TRUE(client.AwaitEnd());
  EXPECT_LE(server.counts.opened, 400);
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
  ExpectServes(server);
}

TEST(ServerAttack, FewResetsAreFine) {
  const TestServer server;
  RawClient client(server.path);
  for (uint32_t i = 0; i < 100; ++i) {
    client.Headers(1 + 2 * i, Request("/t/Hold"));
    client.Reset(1 + 2 * i);
  }
  client.Call(201, "/t/Echo", "x");
  EXPECT_EQ(client.Read(201).status(), "0");
}

TEST(ServerAttack, ContinuationFloodEndsTheConnection) {
  const TestServer server;
  RawClient client(server.path);
  client.Send(Frame(NGHTTP2_HEADERS, 0, 1, Literals(Request("/t/Echo"))));
  const std::string more =
      Frame(NGHTTP2_CONTINUATION, 0, 1, Literals({{"x", std::string(10'000, 'x')}}));
  for (int i = 0; i < 2000 && client.Send(more); ++i) {
  }
  EXPECT_TRUE(client.AwaitEnd());
  EXPECT_LE(server.server->memory(), kMiB);
  ExpectServes(server);
}

TEST(ServerAttack, PingFloodEndsTheConnection) {
  ServerLimits limits;
  limits.connection.peer.min_ping = std::chrono::seconds(30);
  const TestServer server(limits);
  RawClient client(server.path);
  for (int i = 0; i < 100; ++i) client.Send(Frame(NGHTTP2_PING, 0, 0, "12345678"));
  const auto goaway = client.Await(NGHTTP2_GOAWAY);
  ASSERT_TRUE(goaway.has_value());
  EXPECT_EQ(goaway->Number(4), uint32_t{NGHTTP2_ENHANCE_YOUR_CALM});
  EXPECT_EQ(goaway->payload.substr(8), "too_many_pings");
  EXPECT_TRUE(client.AwaitEnd());
  ExpectServes(server);
}

TEST(ServerAttack, FloodsOfEmptyFramesEndTheConnection) {
  const std::string floods[] = {
      Frame(NGHTTP2_SETTINGS, 0, 0, ""), Frame(NGHTTP2_PRIORITY, 0, 1, std::string(5, '\1')),
      Frame(NGHTTP2_DATA, 0, 1, ""),     Frame(200, 0, 0, ""),
      Frame(NGHTTP2_ALTSVC, 0, 1, "a"),  Frame(255, 1, 1, "end")};
  const TestServer server;
  for (const std::string& flood : floods) {
    RawClient client(server.path);
    client.Headers(1, Request("/t/Echo"));
    for (int i = 0; i < 20'000 && client.Send(flood); ++i) {
    }
    EXPECT_TRUE(client.AwaitEnd()) << static_cast<int>(flood[3]);
  }
  ExpectServes(server);
}

// A window of one byte at a time makes a frame for each.
TEST(ServerAttack, FloodsOfWindowUpdatesAndPingsEndTheConnection) {
  const TestServer server;
  for (const bool ping : {false, true}) {
    RawClient client(server.path);
    client.Settings({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0}});
    client.Call(1, "/t/Stream", "100 100000");
    std::string flood;
    for (int i = 0; i < 100; ++i) {
      flood += Frame(NGHTTP2_WINDOW_UPDATE, 0, 1, std::string("\0\0\0\1", 4));
      if (ping) flood += Frame(NGHTTP2_PING, 0, 0, "12345678");
    }
    for (int i = 0; i < 200 && client.Send(flood); ++i) {
    }
    ExpectEnded(client, NGHTTP2_ENHANCE_YOUR_CALM);
  }
  ExpectServes(server);
}

// Both windows for each segment of a network, and a ping.
TEST(ServerAttack, WindowUpdatesOfAReaderAreFine) {
  const TestServer server;
  RawClient client(server.path);
  client.Call(1, "/t/Stream", "100 100000");
  constexpr uint32_t kSegment = 1448;
  uint32_t read = 0;
  uint64_t total = 0;
  bool ended = false;
  while (!ended) {
    const auto frame = client.Next();
    ASSERT_TRUE(frame.has_value());
    if (frame->type == NGHTTP2_DATA) read += static_cast<uint32_t>(frame->payload.size());
    for (; read >= kSegment; read -= kSegment, total += kSegment) {
      client.Window(0, kSegment);
      client.Window(1, kSegment);
      client.Send(Frame(NGHTTP2_PING, 0, 0, "12345678"));
    }
    ASSERT_NE(frame->type, NGHTTP2_GOAWAY);
    ended = frame->stream == 1 && frame->end();
  }
  EXPECT_GT(total, 9'900'000u);
}

// As grpc-go measures bandwidth, on a connection that answers at once.
TEST(ServerAttack, PingsForEachSmallMessageAreFine) {
  const TestServer server;
  RawClient client(server.path);
  client.Window(0, 1 << 20);
  // So that the server waits for the client.
  client.Settings({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 20}});
  client.Call(1, "/t/Stream", "5000 5");
  int pings = 0;
  for (bool ended = false; !ended;) {
    const auto frame = client.Next();
    ASSERT_TRUE(frame.has_value());
    ASSERT_NE(frame->type, NGHTTP2_GOAWAY);
    if (frame->type == NGHTTP2_DATA) {
      client.Send(Frame(NGHTTP2_PING, 0, 0, "12345678"));
      if (!frame->payload.empty()) {
        client.Window(1, static_cast<uint32_t>(frame->payload.size()));
      }
      ++pings;
    }
    ended = frame->stream == 1 && frame->end();
  }
  EXPECT_GE(pings, 2000);
}

// Acknowledgements pile up for a peer that does not read.
TEST(ServerAttack, PingsOfAPeerThatDoesNotReadEndTheConnection) {
  const TestServer server;
  RawClient client(server.path);
  const std::string ping = Frame(NGHTTP2_PING, 0, 0, "12345678");
  std::string pings;
  for (int i = 0; i < 1000; ++i) pings += ping;
  for (int i = 0; i < 2000 && client.Send(pings); ++i) {
    EXPECT_LE(server.server->memory(), 4 * kMiB);
  }
  EXPECT_TRUE(TestServer::Soon([&] { return server.server->connections() == 0; }));
  ExpectServes(server);
}

TEST(ServerAttack, PeerThatDoesNotReadCostsLittleAndEnds) {
  ServerLimits limits;
  limits.connection.write_stall_time = milliseconds(500);
  const TestServer server(limits);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.path));
    clients.back()->Settings({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0x7fffffff}});
    clients.back()->Window(0, 0x7fff0000 - 65535);
    for (uint32_t stream = 1; stream < 20; stream += 2) {
      clients.back()->Call(stream, "/t/Stream", "100000 100000");
    }
  }
  ASSERT_TRUE(TestServer::Soon([&] { return server.counts.open == 40; }));
  std::this_thread::sleep_for(milliseconds(100));
  // One message per stream and the output of each connection.
  EXPECT_LE(server.server->memory(), size_t{40} * 110'000 + size_t{4} * 600'000);
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
  EXPECT_TRUE(TestServer::Soon([&] { return server.server->connections() == 0; }));
  ExpectServes(server);
}

TEST(ServerAttack, ShutdownEndsAPeerThatDoesNotRead) {
  TestServer server;
  RawClient client(server.path);
  client.Settings({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0x7fffffff}});
  client.Window(0, 0x7fff0000 - 65535);
  client.Call(1, "/t/Stream", "100000 100000");
  ASSERT_TRUE(TestServer::Soon([&] { return server.counts.writes > 0; }));
  const auto begin = std::chrono::steady_clock::now();
  server.server->Shutdown(milliseconds(200));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(200 + 1500));
  EXPECT_EQ(server.counts.open, 0);
}

TEST(ServerAttack, SlowHandshakeIsCut) {
  ServerLimits limits;
  limits.connection.handshake_time = milliseconds(200);
  const TestServer server(limits);
  RawClient silent(server.path, false);
  RawClient dribbles(server.path, false);
  dribbles.Send("PRI * HT");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(silent.AwaitEnd());
  EXPECT_TRUE(dribbles.AwaitEnd());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
  RawClient other(server.path, false);
  other.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(other.AwaitEnd());
}

TEST(ServerAttack, RequestsThatNeverEndAreBounded) {
  const TestServer server;
  RawClient client(server.path);
  const std::string half = Framed(std::string(60'000, 'x')).substr(0, 16'000);
  uint32_t stream = 1;
  for (; stream < 2000; stream += 2) {
    if (!client.Headers(stream, Request("/t/Echo"))) break;
    for (int i = 0; i < 3; ++i) {
      if (client.SendSome(Frame(NGHTTP2_DATA, 0, stream, half), milliseconds(100)) == 0) break;
    }
  }
  EXPECT_LE(server.server->memory(), 4 * kMiB);
  EXPECT_EQ(server.counts.opened, 0) << "the service holds nothing";
  ExpectServes(server);
}

// However little is missing, and whatever else the client sends.
TEST(ServerAttack, RequestsThatDoNotComeInTimeAreRefused) {
  ServerLimits limits;
  limits.request_time = milliseconds(300);
  const TestServer server(limits);
  RawClient client(server.path);
  const std::string message = Framed(std::string(1000, 'x'));
  client.Headers(1, Request("/t/Echo"));
  client.Headers(3, Request("/t/Echo"));
  client.Data(3, message.substr(0, message.size() - 1), false);
  client.Headers(5, Request("/t/Hold"));
  client.Data(5, Framed("x"), false);
  int refused = 0;
  while (refused < 2) {
    const auto frame = client.Next(std::chrono::seconds(20));
    ASSERT_TRUE(frame.has_value());
    if (frame->type != NGHTTP2_HEADERS) continue;
    EXPECT_NE(frame->stream, 5U) << "a request that has arrived may continue";
    EXPECT_EQ(client.Decode(*frame)["grpc-status"], "4");
    ++refused;
  }
  EXPECT_EQ(server.counts.opened, 1);
  ExpectServes(server);
}

TEST(ServerAttack, TooManyConnectionsAreClosed) {
  ServerLimits limits;
  limits.connections = 3;
  const TestServer server(limits);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.path));
    clients.back()->Call(1, "/t/Hold", "x");
  }
  ASSERT_TRUE(TestServer::Soon([&] { return server.counts.open == 3; }));
  EXPECT_TRUE(RawClient(server.path).AwaitEnd());
  clients.pop_back();
  ASSERT_TRUE(TestServer::Soon([&] { return server.server->connections() == 2; }));
  ExpectServes(server);
}

TEST(ServerAttack, MemoryLimitRefusesCallsAndEndsTheLargest) {
  ServerLimits limits;
  limits.memory_bytes = 3 * kMiB;
  const TestServer server(limits);
  RawClient large(server.path);
  large.Settings({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0}});
  for (uint32_t stream = 1; stream < 20; stream += 2) {
    large.Call(stream, "/t/Stream", "10 1000000");
  }
  EXPECT_TRUE(large.AwaitEnd());
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
  ExpectServes(server);
}

TEST(ServerAttack, SurvivesWithoutDescriptors) {
  const TestServer server;
  RawClient before(server.path);
  before.Call(1, "/t/Echo", "x");
  EXPECT_EQ(before.Read(1).status(), "0");
  rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  std::vector<std::unique_ptr<RawClient>> clients;
  const int next = dup(0);
  close(next);
  // Two more for this test's sockets, none for the server.
  rlimit low = old;
  low.rlim_cur = static_cast<rlim_t>(next) + 1;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  {
    RawClient refused(server.path);
    EXPECT_TRUE(refused.AwaitEnd());
    before.Call(3, "/t/Echo", "x");
    EXPECT_EQ(before.Read(3).status(), "0");
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  std::this_thread::sleep_for(milliseconds(200));
  ExpectServes(server);
}

// Idle connections must not take the descriptors with which calls open files.
TEST(ServerAttack, ConnectionsLeaveDescriptorsForCalls) {
  const TestServer server;
  rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  const int next = dup(0);
  close(next);
  rlimit low = old;
  low.rlim_cur = static_cast<rlim_t>(next) + 60;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<std::unique_ptr<RawClient>> clients;
  bool refused = false;
  while (!refused && clients.size() < 60) {
    clients.push_back(std::make_unique<RawClient>(server.path));
    clients.back()->Call(1, "/t/Echo", "x");
    refused = clients.back()->Read(1).status() != "0";
  }
  std::vector<int> opened;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) opened.push_back(fd);
  const size_t left = opened.size();
  for (const int fd : opened) close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_TRUE(refused);
  EXPECT_GT(clients.size(), 5U);
  EXPECT_GE(left, 8U);
  clients.front()->Call(3, "/t/Echo", "x");
  EXPECT_EQ(clients.front()->Read(3).status(), "0");
}

// A call cut after any number of bytes, and one reset after any number of frames.
TEST(ServerAttack, ResetsAtEveryStage) {
  const TestServer server;
  const std::string call =
      Frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1, Literals(Request("/t/Stream"))) +
      Frame(NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, Framed("3 50000"));
  for (size_t cut = 0; cut <= call.size(); cut += 5) {
    RawClient client(server.path);
    client.Send(call.substr(0, cut));
  }
  for (int wait = 0; wait < 20; ++wait) {
    RawClient client(server.path);
    client.Send(call);
    client.Window(0, kMiB);
    for (int i = 0; i < wait; ++i) {
      const auto frame = client.Next(milliseconds(1));
      if (frame.has_value() && frame->type == NGHTTP2_HEADERS) client.Decode(*frame);
    }
    client.Reset(1);
    client.Call(3, "/t/Echo", "x");
    EXPECT_EQ(client.Read(3).status(), "0");
  }
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
  EXPECT_TRUE(TestServer::Soon([&] { return server.server->connections() == 0; }));
  ExpectServes(server);
}

}  // namespace server_attack_test
}  // namespace cbt::rpc::http2

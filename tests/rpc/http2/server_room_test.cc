// Strangers who use up a server's connections and memory: they go, and no one else is refused.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cbt/rpc/options.h"
#include "cbt/units.h"
#include "net/tls_context.h"
#include "rpc/http2/server.h"
#include "tests/net/certificates.h"
#include "tests/rpc/http2/raw_client.h"
#include "tests/rpc/http2/test_service.h"

namespace cbt::rpc::http2 {
namespace server_room_test {

using std::chrono::milliseconds;
using test::Frame;
using test::Framed;
using test::Literals;
using test::RawClient;
using test::Request;
using test::TestServer;
using Clients = std::vector<std::unique_ptr<RawClient>>;

// What the connections of one event may hold before it is seen.
constexpr size_t kSlack = kMiB;

RawClient& AddTo(Clients& clients, const TestServer& server) {
  return *clients.emplace_back(std::make_unique<RawClient>(server.path));
}

::testing::AssertionResult Serves(RawClient& client, uint32_t stream) {
  client.Call(stream, "/t/Echo", "x");
  const std::string status = client.Read(stream).status();
  if (status == "0") return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "status '" << status << "'";
}

// Half a request: headers, and `bytes` of a longer message.
void SendHalf(RawClient& client, uint32_t stream, size_t bytes) {
  client.Headers(stream, Request("/t/Echo"));
  std::string rest = test::Number(0, 1) + test::Number(60'000) + std::string(bytes, 'x');
  for (size_t at = 0; at < rest.size(); at += 10'000) {
    client.Data(stream, rest.substr(at, 10'000), false);
  }
}

class ServerRoom : public testing::Test {
 protected:
  ServerRoom() {
    getrlimit(RLIMIT_NOFILE, &descriptors_);
    rlimit all = descriptors_;
    all.rlim_cur = all.rlim_max;
    setrlimit(RLIMIT_NOFILE, &all);
  }
  ~ServerRoom() override { setrlimit(RLIMIT_NOFILE, &descriptors_); }

 private:
  rlimit descriptors_ = {};
};

// Each connection is small, all together are too much.
TEST_F(ServerRoom, XIdleConnectionsMakeRoomForOthers) {
  ServerLimits limits;
  limits.memory_bytes = 3 * kMiB;
  const TestServer server(limits);
  Clients idle;
  RawClient old(server.path);
  ASSERT_TRUE(Serves(old, 1));
  uint32_t stream = 1;
  size_t most = 0;
  for (int i = 0; i < 600; ++i) {
    // Its SETTINGS: the server knows it. One that is ended already has had others after it.
    AddTo(idle, server).Await(NGHTTP2_SETTINGS);
    most = std::max(most, server.server->memory());
    if (i % 50 != 0) continue;
    ASSERT_TRUE(Serves(old, stream += 2)) << "an old connection with calls, after " << i;
    RawClient young(server.path);
    ASSERT_TRUE(Serves(young, 1)) << "a new connection, after " << i;
  }
  EXPECT_LE(most, limits.memory_bytes + kSlack);
  // They get GOAWAY, so that they come again with their next call.
  const auto goaway = idle.front()->Await(NGHTTP2_GOAWAY);
  ASSERT_TRUE(goaway.has_value());
  EXPECT_EQ(goaway->Number(4), uint32_t{NGHTTP2_NO_ERROR});
  EXPECT_TRUE(idle.front()->AwaitEnd());
  EXPECT_TRUE(Serves(*idle.back(), 1)) << "the youngest";
}

TEST_F(ServerRoom, XHalfSentRequestsGoFirst) {
  ServerLimits limits;
  limits.memory_bytes = 6 * kMiB;
  const TestServer server(limits);
  Clients honest;
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(Serves(AddTo(honest, server), 1));
  std::this_thread::sleep_for(milliseconds(1100));  // they are idle for longer than the attackers
  Clients halves;
  uint32_t stream = 1;
  size_t most = 0;
  for (int i = 0; i < 400; ++i) {
    SendHalf(AddTo(halves, server), 1, 50'000);
    most = std::max(most, server.server->memory());
    if (i % 40 != 0) continue;
    stream += 2;
    for (const auto& client : honest) ASSERT_TRUE(Serves(*client, stream)) << "after " << i;
  }
  EXPECT_LE(most, limits.memory_bytes + kSlack);
}

// What waits for calls of their own is not taken from those whose calls are served.
TEST_F(ServerRoom, XCallsThatAreServedStay) {
  ServerLimits limits;
  limits.memory_bytes = 4 * kMiB;
  const TestServer server(limits);
  Clients busy;
  for (int i = 0; i < 20; ++i) AddTo(busy, server).Call(1, "/t/Hold", "x");
  ASSERT_TRUE(TestServer::Soon([&] { return server.counts.open == 20; }));
  std::this_thread::sleep_for(milliseconds(1100));
  Clients halves;
  for (int i = 0; i < 300; ++i) SendHalf(AddTo(halves, server), 1, 50'000);
  EXPECT_EQ(server.counts.open, 20);
  EXPECT_EQ(server.counts.cancelled, 0);
  for (const auto& client : busy) EXPECT_TRUE(Serves(*client, 3));
}

TEST_F(ServerRoom, ZAManyHalfRequestsStayWithinTheQuota) {
  ServerLimits limits;
  limits.memory_bytes = 4 * kMiB;
  const TestServer server(limits);
  std::string many;
  for (uint32_t stream = 1; stream < 400; stream += 2) {
    many += Frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, stream, Literals(Request("/t/Echo")));
  }
  Clients clients;
  size_t most = 0;
  for (int i = 0; i < 200; ++i) {
    AddTo(clients, server).Send(many);
    most = std::max(most, server.server->memory());
    if (i % 20 != 0) continue;
    RawClient other(server.path);
    ASSERT_TRUE(Serves(other, 1)) << "after " << i;
  }
  EXPECT_LE(most, limits.memory_bytes + kSlack);
}

// At the limit of connections the one that has been without a call for longest goes.
TEST_F(ServerRoom, XTheLongestIdleIsReplaced) {
  ServerLimits limits;
  limits.connections = 3;
  const TestServer server(limits);
  Clients clients;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Serves(AddTo(clients, server), 1));
  ASSERT_TRUE(Serves(*clients[0], 3));
  RawClient fourth(server.path);
  EXPECT_TRUE(Serves(fourth, 1));
  EXPECT_TRUE(clients[1]->AwaitEnd());
  EXPECT_TRUE(Serves(*clients[0], 5));
  EXPECT_TRUE(Serves(*clients[2], 3));
  EXPECT_LE(server.server->connections(), 3U);
}

// The defaults: as many idle connections as are allowed hold no more than all may hold.
TEST_F(ServerRoom, XDefaultsFitEachOther) {
  const test::TestAuthority authority;
  const test::PemIdentity identity = authority.Issue();
  const ConnectionOptions defaults;
  EXPECT_EQ(ServerLimits().connections, defaults.max_connections);
  EXPECT_EQ(ServerLimits().memory_bytes, defaults.memory_quota);
  for (const bool secure : {false, true}) {
    const auto tls = test::ValueOf(net::ServerTls::Create({.certificate = identity.certificate,
                                                           .private_key = identity.key,
                                                           .client_ca = authority.pem()}));
    const TestServer server({}, secure ? NewServerSsl([&]() -> absl::StatusOr<net::OwnedSsl> {
                              auto made = tls->NewConnection();
                              if (!made.ok()) return made.status();
                              return net::OwnedSsl(made->release());
                            })
                                       : NewServerSsl());
    constexpr size_t kCount = 50;
    Clients clients;
    const size_t before = server.server->memory();
    for (size_t i = 0; i < kCount; ++i) {
      SSL* ssl = nullptr;
      const int fd = test::ConnectTo(server.path);
      if (secure) {
        const net::SslContext context(SSL_CTX_new(TLS_client_method()));
        const net::TlsIdentity own =
            test::ValueOf(net::ReadIdentity(identity.certificate, identity.key));
        ASSERT_OK(net::UseIdentity(context.get(), own));
        SSL_CTX_set_alpn_protos(context.get(), reinterpret_cast<const unsigned char*>("\2h2"), 3);
        ssl = SSL_new(context.get());
        SSL_set_fd(ssl, fd);
        ASSERT_EQ(SSL_connect(ssl), 1);
      }
      clients.push_back(std::make_unique<RawClient>(fd, ssl));
      ASSERT_TRUE(Serves(*clients.back(), 1));
    }
    // The last one's stream is closed a moment after its answer.
    std::this_thread::sleep_for(milliseconds(50));
    // One chunk for each loop was counted before, or is not there yet.
    const size_t held = server.server->memory() - before;
    const size_t each = held / kCount;
    RecordProperty(secure ? "tls" : "plain", static_cast<int>(each));
    EXPECT_LE(each * defaults.max_connections, defaults.memory_quota) << each << " bytes each";
    EXPECT_GE(each, (secure ? 24U : 8U) * kKiB) << "something is not counted";
  }
}

TEST(TlsHello, VFirstBytesDecide) {
  const auto fits = [](std::array<uint8_t, net::kHelloHeadBytes> head) {
    return net::IsFitHello(head);
  };
  EXPECT_TRUE(fits({22, 3, 1, 2, 0, 1, 0, 1, 252}));
  EXPECT_TRUE(fits({22, 3, 1, 2, 0, 1, 0, 63, 252})) << "16,380 bytes: OpenSSL's own buffer";
  EXPECT_FALSE(fits({22, 3, 1, 2, 0, 1, 0, 63, 253}));
  EXPECT_FALSE(fits({22, 3, 1, 0, 68, 1, 1, 255, 184})) << "131,000";
  EXPECT_FALSE(fits({22, 3, 1, 2, 0, 11, 1, 0, 0})) << "another message as long";
  EXPECT_FALSE(fits({22, 3, 1, 0, 3, 1, 0, 0, 22})) << "a header in two records";
  EXPECT_TRUE(fits({'G', 'E', 'T', ' ', '/', ' ', 'H', 'T', 'T'})) << "named by OpenSSL";
}

}  // namespace server_room_test
}  // namespace cbt::rpc::http2

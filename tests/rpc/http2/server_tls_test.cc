// A server over TLS, record by record: who is admitted, and how odd peers are treated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cbt/units.h"
#include "net/tls_context.h"
#include "rpc/http2/channel.h"
#include "rpc/http2/server.h"
#include "tests/net/certificates.h"
#include "tests/rpc/http2/collector.h"
#include "tests/rpc/http2/raw_client.h"
#include "tests/rpc/http2/retried_hello.h"
#include "tests/rpc/http2/test_service.h"

namespace cbt::rpc::http2 {
namespace server_tls_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Frame;
using test::Framed;
using test::PemIdentity;
using test::RawClient;
using test::Request;
using test::TestAuthority;
using test::TestServer;

// What a client offers.
struct Offer {
  int version = TLS1_3_VERSION;
  std::string protocols = std::string("\2h2");
  const PemIdentity* identity = nullptr;
};

class ServerOverTls : public testing::Test {
 protected:
  ServerOverTls() { std::signal(SIGPIPE, SIG_IGN); }

  void Start(ServerLimits limits = {}, bool client_certificates = false) {
    const PemIdentity identity = authority_.Issue();
    tls_ = test::ValueOf(
        net::ServerTls::Create({.certificate = identity.certificate,
                                .private_key = identity.key,
                                .client_ca = client_certificates ? authority_.pem() : ""}));
    server_.emplace(limits, [this]() -> absl::StatusOr<net::OwnedSsl> {
      auto made = tls_->NewConnection();
      if (!made.ok()) return made.status();
      return net::OwnedSsl(made->release());
    });
  }

  // Runs the client before its handshake on `fd`; plain OpenSSL.
  static SSL* Client(int fd, const Offer& offer) {
    const net::SslContext context(SSL_CTX_new(TLS_client_method()));
    SSL_CTX_set_security_level(context.get(), 0);
    SSL_CTX_set_min_proto_version(context.get(), TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context.get(), offer.version);
    SSL_CTX_set_alpn_protos(context.get(),
                            reinterpret_cast<const unsigned char*>(offer.protocols.data()),
                            static_cast<unsigned int>(offer.protocols.size()));
    if (offer.identity != nullptr) {
      const net::TlsIdentity identity =
          test::ValueOf(net::ReadIdentity(offer.identity->certificate, offer.identity->key));
      EXPECT_OK(net::UseIdentity(context.get(), identity));
    }
    SSL* const ssl = SSL_new(context.get());
    SSL_clear_mode(ssl, SSL_MODE_AUTO_RETRY);
    SSL_set_connect_state(ssl);
    SSL_set_fd(ssl, fd);
    // A hanging test would report nothing.
    const timeval limit = {.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return ssl;
  }

  // Connects and shakes hands; null if the handshake fails.
  std::unique_ptr<RawClient> Connect(const Offer& offer = {}, bool preface = true) const {
    const int fd = test::ConnectTo(server_->path);
    SSL* const ssl = Client(fd, offer);
    ERR_clear_error();
    if (SSL_do_handshake(ssl) == 1) return std::make_unique<RawClient>(fd, ssl, preface);
    SSL_free(ssl);
    close(fd);
    return nullptr;
  }

  void ExpectServes() const {
    const auto client = Connect();
    ASSERT_NE(client, nullptr);
    client->Call(1, "/t/Echo", "still here");
    EXPECT_EQ(client->Read(1).status(), "0");
  }

  void ExpectNoConnections() const {
    EXPECT_TRUE(TestServer::Soon([&] { return server_->server->connections() == 0; }, seconds(20)));
  }

  const TestAuthority authority_;
  std::unique_ptr<net::ServerTls> tls_;
  std::optional<TestServer> server_;
};

TEST_F(ServerOverTls, ServesTls12And13AndNothingOlder) {
  Start();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const auto client = Connect({.version = version});
    ASSERT_NE(client, nullptr) << version;
    EXPECT_EQ(SSL_version(client->ssl()), version);
    client->Call(1, "/t/Echo", "x");
    EXPECT_EQ(client->Read(1).status(), "0");
  }
  for (const int version : {TLS1_VERSION, TLS1_1_VERSION}) {
    EXPECT_EQ(Connect({.version = version}), nullptr) << version;
  }
  ExpectNoConnections();
  ExpectServes();
}

TEST_F(ServerOverTls, RefusesClientsThatDoNotOfferHttp2) {
  Start();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    for (const char* const protocols : {"", "\x8http/1.1", "\2h3"}) {
      EXPECT_EQ(Connect({.version = version, .protocols = protocols}), nullptr)
          << version << ' ' << protocols;
    }
    EXPECT_NE(Connect({.version = version, .protocols = "\x8http/1.1\2h2"}), nullptr);
  }
  ExpectNoConnections();
  ExpectServes();
}

// The client's first flight.
std::string FirstFlight() {
  const net::SslContext context(SSL_CTX_new(TLS_client_method()));
  const net::Ssl ssl(SSL_new(context.get()));
  static const unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_set_alpn_protos(ssl.get(), kHttp2, sizeof kHttp2);
  SSL_set_connect_state(ssl.get());
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), out);
  SSL_do_handshake(ssl.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(out, &data);
  return {data, static_cast<size_t>(size)};
}

// However far a peer gets, and whatever it keeps sending, the handshake has a time limit.
TEST_F(ServerOverTls, AHandshakeThatStallsIsCut) {
  ServerLimits limits;
  limits.connection.handshake_time = milliseconds(500);
  Start(limits);
  const std::string hello = FirstFlight();
  ASSERT_GT(hello.size(), 200U);
  RawClient silent(server_->path, false);
  RawClient half(server_->path, false);
  half.Send(hello.substr(0, hello.size() / 2));
  RawClient first(server_->path, false);
  first.Send(hello);
  RawClient dribbles(server_->path, false);
  size_t sent = 0;
  while (sent < hello.size() && !dribbles.ended()) {
    dribbles.Send(hello.substr(sent++, 1));
    dribbles.Next(milliseconds(10));
  }
  EXPECT_LT(sent, hello.size());
  for (RawClient* const client : {&silent, &half, &first}) {
    EXPECT_TRUE(client->AwaitEnd(seconds(20)));
  }
  const auto mute = Connect({}, false);
  ASSERT_NE(mute, nullptr);
  EXPECT_TRUE(mute->AwaitEnd(seconds(20)));
  ExpectNoConnections();
  ExpectServes();
}

// OpenSSL would allocate what a hello announces.
TEST_F(ServerOverTls, VAnAbsurdHelloEndsAtItsFirstBytes) {
  Start();
  const std::string absurd =
      std::string("\x16\x03\x01", 3) + test::Number(68, 2) + "\1" + test::Number(131'000, 3);
  for (const bool dribbled : {false, true}) {
    RawClient client(server_->path, false);
    for (const char c : dribbled ? absurd : std::string()) client.Send(std::string(1, c));
    client.Send(dribbled ? std::string() : absurd + std::string(64, 'x'));
    EXPECT_TRUE(client.AwaitEnd(seconds(5))) << "before the time of handshakes";
  }
  ExpectNoConnections();
  ExpectServes();
}

// A server asks for a second hello if it can't use the key of the first one.
class RetriedHellos : public ServerOverTls {
 protected:
  ~RetriedHellos() override {
    for (const int fd : sockets_) close(fd);
  }

  // Sends a first one, and what it is answered with a second one.
  int Retry(size_t announced, bool dribbled = false) {
    const int fd = sockets_.emplace_back(test::ConnectTo(server_->path));
    const timeval limit = {.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    static const std::string first = test::HelloToRetry("\2h2");
    EXPECT_EQ(send(fd, first.data(), first.size(), MSG_NOSIGNAL), ssize_t(first.size()));
    std::string answer(4096, '\0');
    answer.resize(
        static_cast<size_t>(std::max<ssize_t>(recv(fd, answer.data(), answer.size(), 0), 0)));
    EXPECT_TRUE(test::AsksToRetry(answer)) << answer.size();
    const std::string second = test::SecondHello(announced, 64);
    for (size_t at = 0; at < second.size(); at += dribbled ? 1 : second.size()) {
      if (send(fd, &second[at], dribbled ? 1 : second.size(), MSG_NOSIGNAL) < 0) break;
    }
    return fd;
  }

  static bool Ended(int fd) {
    char bytes[256];
    ssize_t got = 1;
    while (got > 0) got = recv(fd, bytes, sizeof bytes, 0);
    return got == 0 || errno != EAGAIN;
  }

  static size_t ResidentBytes() {
    size_t all = 0;
    size_t resident = 0;
    std::ifstream("/proc/self/statm") >> all >> resident;
    return resident * 4096;
  }

  std::vector<int> sockets_;
};

TEST_F(RetriedHellos, VAnAbsurdSecondOneEndsAtItsFirstBytes) {
  ServerLimits limits;
  limits.connection.handshake_time = std::chrono::minutes(5);
  Start(limits);
  for (const bool dribbled : {false, true}) {
    EXPECT_TRUE(Ended(Retry(131'000, dribbled))) << dribbled;
  }
  ExpectNoConnections();
  ExpectServes();
}

TEST_F(RetriedHellos, VTheirMemoryIsThatOfTheMetric) {
  Start();
  constexpr int kCount = 400;
  const size_t before = ResidentBytes();
  for (int i = 0; i < kCount; ++i) Retry(16'000);
  EXPECT_EQ(server_->server->connections(), size_t{kCount});
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(ResidentBytes(), before + server_->server->memory() + kMiB);
#endif
  const size_t held = server_->server->memory();
  for (int i = 0; i < kCount; ++i) Retry(131'000);
  for (int i = kCount; i < 2 * kCount; ++i) EXPECT_TRUE(Ended(sockets_[size_t(i)]));
  EXPECT_TRUE(TestServer::Soon([&] { return server_->server->memory() <= held; }));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(ResidentBytes(), before + held + kMiB);
#endif
}

TEST_F(RetriedHellos, VASoundSecondOneIsServed) {
  const PemIdentity identity = authority_.Issue();
  tls_ = test::ValueOf(net::ServerTls::Create(
      {.certificate = identity.certificate, .private_key = identity.key, .groups = "P-256"}, {}));
  server_.emplace(ServerLimits{}, [this]() -> absl::StatusOr<net::OwnedSsl> {
    auto made = tls_->NewConnection();
    if (!made.ok()) return made.status();
    return net::OwnedSsl(made->release());
  });
  const int fd = test::ConnectTo(server_->path);
  SSL* const ssl = Client(fd, {});
  SSL_set1_groups_list(ssl, "X25519:P-256");
  ASSERT_EQ(SSL_do_handshake(ssl), 1);
  RawClient client(fd, ssl);
  client.Call(1, "/t/Echo", "x");
  EXPECT_EQ(client.Read(1).status(), "0");
}

// What OpenSSL holds for handshakes is counted, and the oldest make room.
TEST_F(ServerOverTls, VHandshakesStayWithinTheQuota) {
  ServerLimits limits;
  limits.memory_bytes = 8 * kMiB;
  Start(limits);
  const std::string hello = FirstFlight();
  std::vector<std::unique_ptr<RawClient>> clients;
  size_t most = 0;
  for (int i = 0; i < 400; ++i) {
    clients.push_back(std::make_unique<RawClient>(server_->path, false));
    clients.back()->Send(hello.substr(0, hello.size() / 2));
    most = std::max(most, server_->server->memory());
    if (i == 20) {
      EXPECT_TRUE(TestServer::Soon([&] { return server_->server->connections() == 21; }));
      EXPECT_GE(server_->server->memory(), size_t{21} * 55 * kKiB) << "what OpenSSL allocates";
    }
    if (i % 40 == 0) ExpectServes();
  }
  EXPECT_LE(most, limits.memory_bytes * 5 / 4);
  EXPECT_TRUE(clients.front()->AwaitEnd(seconds(5)));
}

// Nor do strangers in their handshake end the connections of those who have proved who they are.
TEST_F(ServerOverTls, VHandshakesDoNotEndEstablishedConnections) {
  ServerLimits limits;
  limits.memory_bytes = 8 * kMiB;
  Start(limits, true);
  const PemIdentity good = authority_.Issue();
  std::vector<std::unique_ptr<RawClient>> admitted;
  for (int i = 0; i < 8; ++i) {
    admitted.push_back(Connect({.identity = &good}));
    ASSERT_NE(admitted.back(), nullptr);
  }
  std::this_thread::sleep_for(milliseconds(1100));
  std::vector<std::unique_ptr<RawClient>> strangers;
  const std::string hello = FirstFlight();
  for (int i = 0; i < 400; ++i) {
    strangers.push_back(std::make_unique<RawClient>(server_->path, false));
    strangers.back()->Send(hello);
  }
  EXPECT_TRUE(strangers.front()->AwaitEnd(seconds(5)));
  for (const auto& client : admitted) {
    client->Call(1, "/t/Echo", "x");
    EXPECT_EQ(client->Read(1).status(), "0");
  }
}

TEST_F(ServerOverTls, PlainBytesAndTlsDoNotMeet) {
  Start();
  RawClient plain(server_->path);
  EXPECT_TRUE(plain.AwaitEnd(seconds(20)));
  RawClient http(server_->path, false);
  http.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(http.AwaitEnd(seconds(20)));
  ExpectNoConnections();
  ExpectServes();
  // Our own client says so and does not wait.
  const auto channel =
      test::ValueOf(MakeChannel(test::ValueOf(net::ParseAddress("unix:" + server_->path)), {}));
  const absl::Status refused = channel->Connect(std::chrono::system_clock::now() + seconds(20));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("the server speaks TLS"));
  EXPECT_FALSE(channel->IsTransient());
  const TestServer without;
  const int fd = test::ConnectTo(without.path);
  const net::Ssl ssl(Client(fd, {}));
  EXPECT_NE(SSL_do_handshake(ssl.get()), 1);
  close(fd);
  EXPECT_TRUE(TestServer::Soon([&] { return without.server->connections() == 0; }, seconds(20)));
}

// A handshake is the most expensive operation that a client can request.
TEST_F(ServerOverTls, RenegotiationIsRefused) {
  Start();
  for (int i = 0; i < 10; ++i) {
    const auto client = Connect({.version = TLS1_2_VERSION});
    ASSERT_NE(client, nullptr);
    client->Call(1, "/t/Echo", "x");
    EXPECT_EQ(client->Read(1).status(), "0");
    ERR_clear_error();
    ASSERT_EQ(SSL_renegotiate(client->ssl()), 1);
    EXPECT_NE(SSL_do_handshake(client->ssl()), 1);
    EXPECT_EQ(ERR_GET_REASON(ERR_peek_error()), SSL_R_NO_RENEGOTIATION);
  }
  ExpectNoConnections();
  ExpectServes();
}

// A peer that requests new keys and reads no answer is cut like one that reads no messages. The
// loop must not spin meanwhile.
TEST_F(ServerOverTls, NewKeysAreTakenAndCostLittle) {
  ServerLimits limits;
  limits.connection.write_stall_time = milliseconds(500);
  Start(limits);
  const auto client = Connect();
  ASSERT_NE(client, nullptr);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(SSL_key_update(client->ssl(), SSL_KEY_UPDATE_REQUESTED), 1);
    const uint32_t stream = 1 + 2 * static_cast<uint32_t>(i);
    client->Call(stream, "/t/Echo", "x");
    EXPECT_EQ(client->Read(stream).status(), "0");
  }
  const auto flood = Connect();
  ASSERT_NE(flood, nullptr);
  const timeval wait_limit = {.tv_sec = 0, .tv_usec = 100'000};
  setsockopt(flood->fd(), SOL_SOCKET, SO_SNDTIMEO, &wait_limit, sizeof wait_limit);
  bool refused = false;
  for (int i = 0; i < 100'000 && !refused; ++i) {
    refused = SSL_key_update(flood->ssl(), SSL_KEY_UPDATE_REQUESTED) != 1 ||
              SSL_do_handshake(flood->ssl()) != 1;
  }
  EXPECT_TRUE(refused);
  EXPECT_LE(server_->server->memory(), kMiB);
  EXPECT_TRUE(TestServer::Soon([&] { return server_->server->connections() == 1; }, seconds(20)));
  ExpectServes();
}

// A client that closes its sending side cannot be answered; its calls are cancelled, and nothing
// waits.
TEST_F(ServerOverTls, HalfClosedConnectionsEnd) {
  Start();
  int cancelled = 0;
  for (const bool says_so : {true, false}) {
    const auto client = Connect();
    ASSERT_NE(client, nullptr);
    client->Call(1, "/t/Hold", "x");
    ASSERT_TRUE(TestServer::Soon([&] { return server_->counts.open == 1; }, seconds(20)));
    if (says_so) {
      SSL_shutdown(client->ssl());
    } else {
      shutdown(client->fd(), SHUT_WR);
    }
    EXPECT_TRUE(client->AwaitEnd(seconds(20)));
    EXPECT_TRUE(TestServer::Soon([&] { return server_->counts.open == 0; }, seconds(20)));
    EXPECT_EQ(server_->counts.cancelled, ++cancelled);
  }
  ExpectNoConnections();
  ExpectServes();
}

TEST_F(ServerOverTls, RecordsMayComeByteByByteOrBeAByteLong) {
  Start();
  const std::string frames =
      Frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1, test::Literals(Request("/t/Echo"))) +
      Frame(NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, Framed("in small pieces"));
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const auto tiny = Connect({.version = version});
    ASSERT_NE(tiny, nullptr);
    for (const char c : frames) ASSERT_TRUE(tiny->Send(std::string(1, c)));
    EXPECT_EQ(tiny->Read(1).body, Framed("in small pieces"));

    const auto dribbles = Connect({.version = version});
    ASSERT_NE(dribbles, nullptr);
    BIO* const out = BIO_new(BIO_s_mem());
    SSL_set0_wbio(dribbles->ssl(), out);
    dribbles->Send(frames);
    char* data = nullptr;
    const long size = BIO_get_mem_data(out, &data);
    for (long i = 0; i < size; ++i) ASSERT_EQ(send(dribbles->fd(), data + i, 1, MSG_NOSIGNAL), 1);
    EXPECT_EQ(dribbles->Read(1).body, Framed("in small pieces"));
  }
}

TEST_F(ServerOverTls, ADamagedRecordEndsTheConnection) {
  Start();
  const auto client = Connect();
  ASSERT_NE(client, nullptr);
  client->Call(1, "/t/Hold", "x");
  ASSERT_TRUE(TestServer::Soon([&] { return server_->counts.open == 1; }, seconds(20)));
  const std::string record = std::string("\x17\x03\x03\x00\x20", 5) + std::string(32, 'x');
  ASSERT_EQ(send(client->fd(), record.data(), record.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(record.size()));
  EXPECT_TRUE(client->AwaitEnd(seconds(20)));
  EXPECT_TRUE(TestServer::Soon([&] { return server_->counts.open == 0; }, seconds(20)));
  ExpectServes();
}

TEST_F(ServerOverTls, ClientsMustShowACertificateOfTheAuthority) {
  Start({}, true);
  const PemIdentity good = authority_.Issue();
  const PemIdentity expired = authority_.Issue({.begins = -7200, .ends = -3600});
  const PemIdentity early = authority_.Issue({.begins = 3600, .ends = 7200});
  const PemIdentity foreign = TestAuthority("another").Issue();
  const auto admitted = [&](int version, const PemIdentity* identity) {
    // With TLS 1.3 a client learns of the refusal when it reads.
    const auto client = Connect({.version = version, .identity = identity});
    return client != nullptr && client->Call(1, "/t/Echo", "x") && client->Read(1).status() == "0";
  };
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    EXPECT_FALSE(admitted(version, nullptr));
    EXPECT_FALSE(admitted(version, &expired));
    EXPECT_FALSE(admitted(version, &early));
    EXPECT_FALSE(admitted(version, &foreign));
  }
  EXPECT_EQ(server_->counts.opened, 0);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) EXPECT_TRUE(admitted(version, &good));
  ExpectNoConnections();
}

TEST_F(ServerOverTls, LargeMessagesPassSmallWindows) {
  Start();
  const auto client = Connect();
  ASSERT_NE(client, nullptr);
  client->Settings({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 5000}});
  client->Call(1, "/t/Stream", "3 300000");
  std::string body;
  bool ended = false;
  while (!ended) {
    const auto frame = client->Next(seconds(20));
    ASSERT_TRUE(frame.has_value());
    if (frame->type == NGHTTP2_HEADERS) client->Decode(*frame);
    ended = frame->end() && frame->stream == 1;
    if (frame->type != NGHTTP2_DATA) continue;
    ASSERT_LE(frame->payload.size(), 5000U);
    body += frame->payload;
    const auto taken = static_cast<uint32_t>(frame->payload.size());
    if (taken > 0) client->Send(Frame(NGHTTP2_WINDOW_UPDATE, 0, 0, test::Number(taken)));
    if (taken > 0) client->Window(1, taken);
  }
  EXPECT_TRUE(body == Framed(std::string(300'000, 'a')) + Framed(std::string(300'000, 'b')) +
                          Framed(std::string(300'000, 'c')));

  const auto channel = test::ValueOf(MakeChannel(server_->server->address(),
                                                 {.enabled = true, .ca = authority_.pem()},
                                                 {.stream_window_bytes = 20'000}));
  test::Collector got;
  const auto call = channel->NewCall(std::nullopt);
  call->Start("/t/ThreadStream", "20 1000000", got);
  EXPECT_OK(got.Await());
  ASSERT_EQ(got.messages().size(), 20U);
  EXPECT_TRUE(got.messages().back() == std::string(1'000'000, 't'));
}

TEST_F(ServerOverTls, APeerThatDoesNotReadIsCut) {
  ServerLimits limits;
  limits.connection.write_stall_time = milliseconds(300);
  Start(limits);
  const auto client = Connect();
  ASSERT_NE(client, nullptr);
  client->Settings({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0x7fffffff}});
  client->Window(0, 0x7fff0000 - 65535);
  client->Call(1, "/t/Stream", "100000 100000");
  ASSERT_TRUE(TestServer::Soon([&] { return server_->counts.writes > 0; }, seconds(20)));
  EXPECT_TRUE(TestServer::Soon([&] { return server_->counts.open == 0; }, seconds(20)));
  ExpectNoConnections();
  EXPECT_LE(server_->server->memory(), size_t{2} * 70'000) << "each loop's chunk alone";
}

TEST_F(ServerOverTls, ShutdownIsInTimeWhateverPeersDo) {
  Start();
  const auto mute = Connect({}, false);
  RawClient half(server_->path, false);
  half.Send(FirstFlight().substr(0, 100));
  const auto client = Connect();
  ASSERT_NE(client, nullptr);
  client->Settings({{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0x7fffffff}});
  client->Window(0, 0x7fff0000 - 65535);
  client->Call(1, "/t/Stream", "100000 100000");
  ASSERT_TRUE(TestServer::Soon([&] { return server_->counts.writes > 0; }, seconds(20)));
  server_->server->Shutdown(milliseconds(200));
  EXPECT_EQ(server_->counts.open, 0);
  EXPECT_EQ(server_->server->connections(), 0U);
}

}  // namespace server_tls_test
}  // namespace cbt::rpc::http2

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/revisions/http_server/http_server_fixture.h"

namespace cbt::test {
namespace {

using kube::http_server::Request;
using kube::http_server::Respond;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::StartsWith;

using Clock = std::chrono::steady_clock;

class HttpServerLimitsTest : public HttpServerTest {};

TEST_F(HttpServerLimitsTest, HeadersAndBodiesHaveLimits) {
  options_.max_header_bytes = 1000;
  options_.max_body_bytes = 2000;
  StartEcho();
  auto client = Connect();
  ASSERT_TRUE(client->Send(Post("", "X-Long: " + std::string(2000, 'x') + "\r\n")));
  EXPECT_THAT(client->Read(), StartsWith("HTTP/1.1 431 "));
  client = Connect();
  ASSERT_TRUE(client->Send("GET /" + std::string(2000, 'x')));
  EXPECT_THAT(client->Read(), StartsWith("HTTP/1.1 431 "));
  client = Connect();
  ASSERT_TRUE(client->Send(Post(std::string(2000, 'b'))));
  EXPECT_THAT(client->Read("bb"), StartsWith("HTTP/1.1 200 "));
  client = Connect();
  ASSERT_TRUE(client->Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2001\r\n\r\n"));
  EXPECT_THAT(client->Read(), StartsWith("HTTP/1.1 413 "));
  client = Connect();
  ASSERT_TRUE(
      client->Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: "
                   "18446744073709551615\r\n\r\n"));
  EXPECT_THAT(client->Read(), StartsWith("HTTP/1.1 4"));
  client = Connect();
  ASSERT_TRUE(
      client->Send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "7d1\r\n" +
                   std::string(2001, 'b') + "\r\n0\r\n\r\n"));
  EXPECT_THAT(client->Read(), StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServerLimitsTest, BodiesTogetherHaveALimit) {
  options_.max_body_bytes = 600;
  options_.max_memory = 1000;
  std::mutex mutex;
  std::vector<std::pair<std::shared_ptr<const Request>, Respond>> open;
  Start([&](const std::shared_ptr<const Request>& request, const Respond& respond) {
    const std::lock_guard lock(mutex);
    open.emplace_back(request, respond);
  });
  const auto wait_for = [&](size_t count) {
    return WaitFor([&] {
      const std::lock_guard lock(mutex);
      return open.size() == count;
    });
  };
  const auto first = Connect();
  ASSERT_TRUE(first->Send(Post(std::string(600, 'a'))));
  ASSERT_TRUE(wait_for(1));
  const auto second = Connect(nullptr, "127.0.0.2");
  ASSERT_TRUE(second->Send(Post(std::string(401, 'b'))));
  EXPECT_THAT(second->Read(), StartsWith("HTTP/1.1 503 "));
  // One of unknown length counts with what has come of it.
  const auto third = Connect(nullptr, "127.0.0.2");
  ASSERT_TRUE(
      third->Send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "190\r\n" +
                  std::string(400, 'c') + "\r\n"));
  ASSERT_TRUE(third->Send("1\r\nc\r\n"));
  EXPECT_THAT(third->Read(), StartsWith("HTTP/1.1 503 "));
  // An answer does not end what the handler still holds.
  open[0].second({.body = "done"});
  EXPECT_THAT(first->Read("done"), HasSubstr("done"));
  const auto fourth = Connect();
  ASSERT_TRUE(fourth->Send(Post(std::string(600, 'd'))));
  EXPECT_THAT(fourth->Read(), StartsWith("HTTP/1.1 503 "));
  {
    const std::lock_guard lock(mutex);
    open[0].first.reset();
  }
  const auto fifth = Connect();
  ASSERT_TRUE(fifth->Send(Post(std::string(600, 'e'))));
  ASSERT_TRUE(wait_for(2));
}

TEST_F(HttpServerLimitsTest, WAnAnnouncedBodyTakesNoMemory) {
  StartEcho();
  std::vector<std::unique_ptr<TlsClient>> announcing;
  for (int i = 0; i < 40; ++i) {
    announcing.push_back(Connect());
    ASSERT_TRUE(announcing.back()->Send(
        absl::StrCat("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ", 4 << 20, "\r\n\r\n")));
  }
  for (int i = 0; i < 20; ++i) {
    const auto honest = Connect();
    ASSERT_TRUE(honest->Send(Post(std::string(5000, 'h'))));
    EXPECT_THAT(honest->Read("hh"), StartsWith("HTTP/1.1 200 "));
  }
}

TEST_F(HttpServerLimitsTest, WTheAddressThatHoldsMostGivesWay) {
  options_.max_body_bytes = 600;
  options_.max_memory = 2400;
  StartEcho();
  const std::string half = absl::StrCat("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 600\r\n\r\n",
                                        std::string(590, 'x'));
  // Two addresses fill the pool with bodies that do not end; neither may hold more than its half.
  std::vector<std::unique_ptr<TlsClient>> halves;
  for (const char* const from : {"127.0.0.2", "127.0.0.3"}) {
    for (int i = 0; i < 2; ++i) {
      halves.push_back(Connect(nullptr, from));
      ASSERT_TRUE(halves.back()->Send(half));
      // One after the other.
      ASSERT_TRUE(Connect(nullptr, from)->Send(Post("")));
    }
    const auto more = Connect(nullptr, from);
    ASSERT_TRUE(more->Send(half));
    EXPECT_THAT(more->Read(), StartsWith("HTTP/1.1 503 "));
  }
  for (int i = 0; i < 5; ++i) {
    const auto honest = Connect();
    ASSERT_TRUE(honest->Send(Post(std::string(400, 'h'))));
    EXPECT_THAT(honest->Read("hh"), StartsWith("HTTP/1.1 200 "));
  }
  // One had to go; the others can be finished.
  int finished = 0;
  for (const auto& client : halves) {
    if (client->Send(std::string(10, 'x')) && client->Read("xx").starts_with("HTTP/1.1 200 ")) {
      ++finished;
    }
  }
  EXPECT_EQ(finished, 3);
}

TEST_F(HttpServerLimitsTest, WAKnownClientHasAPoolOfItsOwn) {
  options_.max_body_bytes = 600;
  options_.max_memory = 1000;
  options_.max_connections = 12;
  options_.ask_for_certificate = true;
  const PemIdentity proxy = ca_.Issue({.name = "front-proxy"});
  const PemIdentity other = ca_.Issue({.name = "other"});
  std::string known;
  options_.is_known = [&known](const std::vector<std::string>& certificates) {
    return certificates[0] == known;
  };
  std::mutex mutex;
  std::vector<std::pair<std::shared_ptr<const Request>, Respond>> held;
  Start([&](const std::shared_ptr<const Request>& request, const Respond& respond) {
    if (request->path != "/hold") return respond({.body = request->peer_certificates[0]});
    const std::lock_guard lock(mutex);
    held.emplace_back(request, respond);
  });
  {
    const auto first = Connect(&proxy);
    ASSERT_TRUE(first->Send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
    const std::string answer = first->Read();
    known = answer.substr(answer.find("\r\n\r\n") + 4);
  }
  const auto idle = Connect(&proxy);
  // Strangers of two addresses hold all there is of memory, with requests that are being answered.
  std::vector<std::unique_ptr<TlsClient>> strangers;
  for (const char* const from : {"127.0.0.2", "127.0.0.3"}) {
    strangers.push_back(Connect(&other, from));
    ASSERT_TRUE(strangers.back()->Send(
        "POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n" + std::string(500, 'x')));
  }
  ASSERT_TRUE(WaitFor([&] {
    const std::lock_guard lock(mutex);
    return held.size() == 2;
  }));
  // And far more connections than there may be.
  for (int i = 0; i < 30; ++i) strangers.push_back(Connect(&other, "127.0.0.4"));
  const auto stranger = Connect(&other);
  ASSERT_TRUE(stranger->Send(Post(std::string(100, 'x'))));
  EXPECT_THAT(stranger->Read(), StartsWith("HTTP/1.1 503 "));
  for (int i = 0; i < 10; ++i) {
    const auto honest = Connect(&proxy, "127.0.0.4");
    ASSERT_TRUE(honest->Send(Post(std::string(600, 'h'))));
    EXPECT_THAT(honest->Read("\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  }
  // The oldest connection without a request is a known client's.
  ASSERT_TRUE(idle->Send(Post(std::string(600, 'h'))));
  EXPECT_THAT(idle->Read("\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerLimitsTest, WConnectionsOfTheAddressWithMostGoFirst) {
  options_.max_connections = 8;
  StartEcho();
  const auto honest = Connect();
  std::vector<std::unique_ptr<TlsClient>> many;
  for (int i = 0; i < 30; ++i) many.push_back(Connect(nullptr, "127.0.0.2"));
  ASSERT_TRUE(honest->Send(Post("honest.")));
  EXPECT_THAT(honest->Read("honest."), HasSubstr("honest."));
  EXPECT_TRUE(many.front()->IsClosed());
}

// OpenSSL takes memory for the whole of it.
TEST_F(HttpServerLimitsTest, WAHelloThatAnnouncesTooMuchIsClosedAtOnce) {
  options_.handshake_time = std::chrono::minutes(1);
  StartEcho();
  const auto begins = [](size_t message) {
    std::string bytes("\x16\x03\x01\x00\x3f\x01", 6);
    for (const int shift : {16, 8, 0}) bytes += static_cast<char>(message >> shift & 0xff);
    return bytes + std::string(55, '\0');
  };
  TlsClient large(server_->port());
  ASSERT_TRUE(large.SendPlain(begins(131000)));
  EXPECT_TRUE(large.IsClosedPlain());
  // One that is not too large is waited for.
  TlsClient slow(server_->port());
  ASSERT_TRUE(slow.SendPlain(begins(16000)));
  EXPECT_TRUE(WaitFor([this] { return server_->connections() == 1; }));
  EXPECT_THAT(Connect(), testing::NotNull());
}

TEST_F(HttpServerLimitsTest, EveryWaitHasALimit) {
  options_.handshake_time = options_.request_time = options_.handler_time = milliseconds(300);
  options_.idle_time = milliseconds(600);
  Start([](const std::shared_ptr<const Request>& request, const Respond& respond) {
    if (request->path != "/never") respond({.body = "hello"});
  });
  const auto begin = Clock::now();
  TlsClient silent(server_->port());  // no handshake
  const auto half = Connect();        // a request that does not end, though bytes keep coming
  ASSERT_TRUE(half->Send("POST / HTTP/1.1\r\nContent-Length: 100\r\n"));
  const auto idle = Connect();
  ASSERT_TRUE(idle->Send(Post("")));
  EXPECT_THAT(idle->Read("hello"), HasSubstr("hello"));
  const auto forgotten = Connect();
  ASSERT_TRUE(forgotten->Send("GET /never HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_THAT(forgotten->Read(), StartsWith("HTTP/1.1 504 "));
  while (half->Send("X: y\r\n") && Clock::now() < begin + seconds(10)) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_TRUE(idle->IsClosed());
  EXPECT_GE(Clock::now(), begin + milliseconds(600));
  EXPECT_TRUE(WaitFor([this] { return server_->connections() == 0; }));
  EXPECT_LT(Clock::now(), begin + seconds(10));
}

TEST_F(HttpServerLimitsTest, AFurtherConnectionReplacesTheOldestWithoutARequest) {
  options_.max_connections = 3;
  std::mutex mutex;
  std::vector<Respond> open;
  Start([&](const std::shared_ptr<const Request>&, const Respond& respond) {
    const std::lock_guard lock(mutex);
    open.push_back(respond);
  });
  const auto ask = [&](TlsClient& client, size_t number) {
    ASSERT_TRUE(client.Send(Post("")));
    ASSERT_TRUE(WaitFor([&] {
      const std::lock_guard lock(mutex);
      return open.size() == number;
    }));
  };
  const auto first = Connect();
  ask(*first, 1);
  const auto second = Connect();
  const auto third = Connect();
  const auto fourth = Connect();
  EXPECT_TRUE(second->IsClosed());
  ask(*third, 2);
  ask(*fourth, 3);
  // All three are being answered.
  TlsClient fifth(server_->port());
  EXPECT_FALSE(fifth.Handshake());
  open[0]({.body = "done"});
  EXPECT_THAT(first->Read("done"), HasSubstr("done"));
  EXPECT_EQ(server_->connections(), 3u);
}

}  // namespace
}  // namespace cbt::test

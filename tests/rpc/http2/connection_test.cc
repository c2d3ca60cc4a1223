#include "rpc/http2/connection.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/net/tls_pair.h"
#include "tests/support/status.h"

namespace cbt::rpc::http2 {
namespace connection_test {

using std::chrono::milliseconds;

// Records events; sends `messages` one after another.
class TestStream final : public Stream {
 public:
  void OnHeaders(const HeaderBlock& block, bool) noexcept override {
    for (size_t i = 0; i < block.size(); ++i) {
      headers[std::string(block[i].name)] = std::string(block[i].value);
    }
    if (on_headers) on_headers();
  }
  void OnData(absl::Cord piece) noexcept override {
    data.Append(piece);
    if (consume) connection()->Consume(*this, piece.size());
  }
  void OnTrailers(const HeaderBlock& block) noexcept override {
    trailer = std::string(block.Find("grpc-status").value_or("missing"));
  }
  void OnRemoteEnd() noexcept override {
    remote_end = true;
    if (on_end) on_end();
  }
  void OnSent() noexcept override {
    ++sent;
    SendNext();
  }
  void OnClosed(const StreamEnd& how) noexcept override { closed = how; }

  void SendNext() {
    if (messages.empty()) {
      const Header trailers[] = {{"grpc-status", "0"}};
      connection()->SendTrailers(*this, trailers);
      return;
    }
    absl::Cord next = std::move(messages.front());
    messages.pop_front();
    connection()->Send(*this, std::move(next));
  }
  void Answer() {
    const Header headers_out[] = {{":status", "200"}, {"content-type", "application/grpc"}};
    connection()->SendHeaders(*this, headers_out, false);
    SendNext();
  }

  bool consume = true;
  std::function<void()> on_headers;
  std::function<void()> on_end;
  std::map<std::string, std::string> headers;
  absl::Cord data;
  std::string trailer;
  std::deque<absl::Cord> messages;
  int sent = 0;
  bool remote_end = false;
  std::optional<StreamEnd> closed;
};

class Listener final : public ConnectionListener {
 public:
  void OnReady(Connection&) noexcept override { ready = true; }
  Stream* OnRequest(Connection&, const HeaderBlock&) noexcept override {
    return next ? next() : nullptr;
  }
  void OnGoaway(Connection&, uint32_t code, std::string_view text) noexcept override {
    goaway = code;
    goaway_text = std::string(text);
  }
  void OnPong(Connection&) noexcept override { ++pongs; }
  void OnClosed(Connection&, const absl::Status& reason) noexcept override { closed = reason; }

  std::function<Stream*()> next;
  bool ready = false;
  std::optional<uint32_t> goaway;
  std::string goaway_text;
  int pongs = 0;
  std::optional<absl::Status> closed;
};

// A server's and a client's connection on one loop.
class ConnectionTest : public testing::TestWithParam<bool> {
 protected:
  void Start(ConnectionSettings server = {}, ConnectionSettings client = {}) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    client.role = Role::kClient;
    server_ = test::ValueOf(
        Connection::Create(*loop_, chunks_, Socket(pair[0], GetParam(), true), server, at_server_));
    client_ = test::ValueOf(Connection::Create(*loop_, chunks_, Socket(pair[1], GetParam(), false),
                                               client, at_client_));
    at_server_.next = [this] { return served_ ? nullptr : (served_ = true, &answer_); };
  }
  std::unique_ptr<net::SocketStream> Socket(int fd, bool tls, bool accepts) {
    net::OwnedSsl ssl = !tls ? nullptr : accepts ? tls_.Accepting() : tls_.Connecting();
    return test::ValueOf(net::SocketStream::Create(OwnedDescriptor(fd), std::move(ssl)));
  }
  bool Until(const std::function<bool()>& condition,
             milliseconds limit = std::chrono::seconds(10)) {
    const auto end = net::EventLoop::Clock::now() + limit;
    while (!condition() && net::EventLoop::Clock::now() < end) loop_->RunOnce(milliseconds(5));
    return condition();
  }
  void Open(Stream& stream, absl::Cord message) {
    const Header headers[] = {{":method", "POST"},
                              {":scheme", "http"},
                              {":path", "/a/b"},
                              {":authority", "x"},
                              {"te", "trailers"}};
    client_->Open(stream, headers, std::move(message));
  }

  const test::TlsPair tls_;
  std::unique_ptr<net::EventLoop> loop_ = test::ValueOf(net::EventLoop::Create());
  std::shared_ptr<net::MemoryAccount> account_ = std::make_shared<net::MemoryAccount>();
  net::ReadChunks chunks_{account_};
  Listener at_server_;
  Listener at_client_;
  TestStream answer_;
  TestStream call_;
  bool served_ = false;
  std::unique_ptr<Connection> server_;
  std::unique_ptr<Connection> client_;
};

INSTANTIATE_TEST_SUITE_P(PlainAndTls, ConnectionTest, testing::Bool());

std::string RandomText(size_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

TEST_P(ConnectionTest, CarriesACall) {
  Start();
  for (uint32_t i = 0; i < 20; ++i)
    answer_.messages.emplace_back(RandomText(100'000 * (i % 4) + i, i));
  absl::Cord expected;
  for (const absl::Cord& message : answer_.messages) expected.Append(message);
  // An empty message has no byte to wait for.
  answer_.messages.erase(answer_.messages.begin());
  answer_.on_end = [this] { answer_.Answer(); };
  Open(call_, absl::Cord("request"));
  ASSERT_TRUE(Until([this] { return call_.closed && answer_.closed; }));
  EXPECT_EQ(answer_.headers[":path"], "/a/b");
  EXPECT_EQ(answer_.data, "request");
  EXPECT_EQ(call_.headers[":status"], "200");
  EXPECT_TRUE(call_.data == expected);
  EXPECT_EQ(call_.trailer, "0");
  EXPECT_EQ(answer_.sent, 19);
  EXPECT_EQ(call_.closed->by, StreamEnd::By::kBoth);
  EXPECT_EQ(answer_.closed->by, StreamEnd::By::kBoth);
  EXPECT_TRUE(at_server_.ready && at_client_.ready);
  EXPECT_EQ(client_->streams() + server_->streams(), 0U);
}

// A receiver that consumes nothing gets one window of data, and the sender's memory stays small.
TEST_P(ConnectionTest, WaitsForTheReceiver) {
  ConnectionSettings client;
  client.stream_window_bytes = 100'000;
  client.separate_streams = true;
  Start({}, client);
  call_.consume = false;
  for (int i = 0; i < 10; ++i) answer_.messages.emplace_back(RandomText(70'000, 1));
  answer_.on_end = [this] { answer_.Answer(); };
  Open(call_, absl::Cord("x"));
  ASSERT_TRUE(Until([this] { return call_.data.size() >= 100'000; }));
  for (int i = 0; i < 20; ++i) loop_->RunOnce(milliseconds(1));
  EXPECT_EQ(call_.data.size(), 100'000U);
  EXPECT_EQ(answer_.sent, 1);
  EXPECT_GE(account_->used(), 100'000U) << "received data counts until it is consumed";
  client_->Consume(call_, 100'000);
  ASSERT_TRUE(Until([this] { return call_.data.size() >= 200'000; }));
  call_.consume = true;
  client_->Consume(call_, 100'000);
  ASSERT_TRUE(Until([this] { return call_.closed.has_value(); }));
  EXPECT_EQ(call_.data.size(), 700'000U);
}

TEST_P(ConnectionTest, ResetsBothWays) {
  Start();
  Open(call_, absl::Cord("x"));
  ASSERT_TRUE(Until([this] { return answer_.remote_end; }));
  client_->Reset(call_, NGHTTP2_CANCEL);
  EXPECT_EQ(call_.connection(), nullptr);
  ASSERT_TRUE(Until([this] { return answer_.closed.has_value(); }));
  EXPECT_EQ(answer_.closed->by, StreamEnd::By::kPeer);
  EXPECT_EQ(answer_.closed->code, uint32_t{NGHTTP2_CANCEL});
  EXPECT_FALSE(call_.closed.has_value());

  TestStream second;
  TestStream second_answer;
  at_server_.next = [&] { return &second_answer; };
  second_answer.on_headers = [&] { server_->Reset(second_answer, NGHTTP2_INTERNAL_ERROR); };
  Open(second, absl::Cord("x"));
  ASSERT_TRUE(Until([&] { return second.closed.has_value(); }));
  EXPECT_EQ(second.closed->by, StreamEnd::By::kPeer);
  EXPECT_EQ(second.closed->code, uint32_t{NGHTTP2_INTERNAL_ERROR});
}

TEST_P(ConnectionTest, RefusedRequestIsUnprocessed) {
  Start();
  at_server_.next = nullptr;
  Open(call_, absl::Cord("x"));
  ASSERT_TRUE(Until([this] { return call_.closed.has_value(); }));
  EXPECT_TRUE(call_.closed->unprocessed);
}

TEST_P(ConnectionTest, ShutdownLetsOpenStreamsEnd) {
  Start();
  Open(call_, absl::Cord("x"));
  ASSERT_TRUE(Until([this] { return answer_.remote_end; }));
  server_->Shutdown();
  ASSERT_TRUE(Until([this] { return at_client_.goaway.has_value(); }));
  EXPECT_EQ(*at_client_.goaway, uint32_t{NGHTTP2_NO_ERROR});
  EXPECT_FALSE(client_->CanOpen());
  TestStream late;
  Open(late, absl::Cord("x"));
  ASSERT_TRUE(Until([&] { return late.closed.has_value(); }));
  EXPECT_TRUE(late.closed->unprocessed);
  EXPECT_FALSE(call_.closed.has_value());
  answer_.messages.emplace_back("answer");
  answer_.Answer();
  ASSERT_TRUE(Until([this] { return at_server_.closed && at_client_.closed; }));
  EXPECT_EQ(call_.trailer, "0");
  EXPECT_EQ(call_.closed->by, StreamEnd::By::kBoth);
  EXPECT_OK(*at_server_.closed);
  EXPECT_OK(*at_client_.closed);
}

TEST_P(ConnectionTest, LostConnectionEndsStreams) {
  Start();
  Open(call_, absl::Cord("x"));
  ASSERT_TRUE(Until([this] { return answer_.remote_end; }));
  server_.reset();
  ASSERT_TRUE(Until([this] { return at_client_.closed.has_value(); }));
  EXPECT_EQ(at_client_.closed->code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(call_.closed->by, StreamEnd::By::kConnection);
  EXPECT_FALSE(call_.closed->unprocessed);
}

TEST_P(ConnectionTest, TerminationSaysWhy) {
  Start();
  Open(call_, absl::Cord("x"));
  ASSERT_TRUE(Until([this] { return answer_.remote_end; }));
  server_->Terminate(NGHTTP2_ENHANCE_YOUR_CALM, "calm down", absl::AbortedError("why"));
  ASSERT_TRUE(Until([this] { return at_server_.closed && at_client_.closed; }));
  EXPECT_EQ(*at_server_.closed, absl::AbortedError("why"));
  EXPECT_EQ(*at_client_.goaway, uint32_t{NGHTTP2_ENHANCE_YOUR_CALM});
  EXPECT_EQ(at_client_.goaway_text, "calm down");
  EXPECT_TRUE(call_.closed.has_value());
}

TEST_P(ConnectionTest, AnswersPings) {
  ConnectionSettings client;
  client.keepalive_time = milliseconds(20);
  client.keepalive_timeout = milliseconds(500);
  Start({}, client);
  ASSERT_TRUE(Until([this] { return at_client_.ready; }));
  EXPECT_FALSE(Until([this] { return at_client_.closed.has_value(); }, milliseconds(800)));
  client_->Ping();
  EXPECT_TRUE(Until([this] { return at_client_.pongs == 1; }));
}

// The peer's socket stays open, but nothing reads from it.
TEST(Connection, KeepaliveFindsADeadPeer) {
  const auto loop = test::ValueOf(net::EventLoop::Create());
  net::ReadChunks chunks(std::make_shared<net::MemoryAccount>());
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  const OwnedDescriptor peer(pair[1]);
  // An empty SETTINGS frame.
  ASSERT_EQ(send(peer.number(), "\0\0\0\4\0\0\0\0\0", 9, 0), 9);
  Listener listener;
  ConnectionSettings settings;
  settings.role = Role::kClient;
  settings.keepalive_time = milliseconds(20);
  settings.keepalive_timeout = milliseconds(50);
  const auto connection = test::ValueOf(Connection::Create(
      *loop, chunks, test::ValueOf(net::SocketStream::Create(OwnedDescriptor(pair[0]), nullptr)),
      settings, listener));
  const auto begin = net::EventLoop::Clock::now();
  while (!listener.closed && net::EventLoop::Clock::now() - begin < std::chrono::seconds(10)) {
    loop->RunOnce(milliseconds(5));
  }
  ASSERT_TRUE(listener.ready);
  ASSERT_TRUE(listener.closed.has_value());
  EXPECT_EQ(*listener.closed, absl::UnavailableError("keepalive: the peer does not answer"));
  EXPECT_GE(net::EventLoop::Clock::now() - begin, milliseconds(70));
}

TEST_P(ConnectionTest, GivesMemoryBack) {
  Start();
  answer_.messages.emplace_back(RandomText(3'000'000, 1));
  answer_.on_end = [this] { answer_.Answer(); };
  Open(call_, absl::Cord("x"));
  ASSERT_TRUE(Until([this] { return call_.closed && answer_.closed; }));
  EXPECT_EQ(call_.data.size(), 3'000'000U);
  // What is consumed is its receiver's to count.
  EXPECT_LE(account_->used(), 2'000'000U);
  call_.data.Clear();
  EXPECT_LE(server_->memory() + client_->memory(), 80'000U);
  client_.reset();
  server_.reset();
  // One chunk for the next read.
  EXPECT_LE(account_->used(), net::ReadChunks::kChunkBytes + 1000);
}

}  // namespace connection_test
}  // namespace cbt::rpc::http2

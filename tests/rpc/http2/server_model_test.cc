// Random calls on one connection: opened with bytes cut at random places, reset, read at random
// times through small windows. Received must equal sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <string>

#include "cbt/units.h"
#include "rpc/http2/server.h"
#include "tests/rpc/http2/raw_client.h"
#include "tests/rpc/http2/test_service.h"

namespace cbt::rpc::http2 {
namespace server_model_test {

using std::chrono::milliseconds;
using test::Framed;
using test::RawClient;
using test::TestServer;

// A call of the model: its expected and received messages.
struct Expected {
  std::string body;
  std::string got;
  std::string status = "0";
};

class Model {
 public:
  Model(const TestServer& server, uint32_t seed) : random_(seed), client_(server.path) {
    client_.Settings(
        {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, static_cast<uint32_t>(Below(70'000))}});
    client_.Window(0, kGiB);
  }

  void Run() {
    for (int step = 0; step < 60; ++step) {
      switch (Below(4)) {
        case 0:
          Open();
          break;
        case 1:
          Reset();
          break;
        case 2:
          OpenWindow(static_cast<uint32_t>(1 + Below(20'000)));
          break;
        default:
          Read(milliseconds(Below(3)));
      }
    }
    const auto by = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!open_.empty() && std::chrono::steady_clock::now() < by) {
      OpenWindow(50'000);
      Read(milliseconds(20));
    }
    EXPECT_TRUE(open_.empty());
    EXPECT_FALSE(client_.ended());
  }

 private:
  size_t Below(size_t limit) { return random_() % limit; }

  // In pieces of random sizes, across frame borders.
  void SendCut(std::string_view bytes) {
    while (!bytes.empty()) {
      const size_t piece = std::min(1 + Below(1 + Below(200)), bytes.size());
      client_.Send(bytes.substr(0, piece));
      bytes.remove_prefix(piece);
    }
  }

  void Open() {
    const uint32_t stream = next_;
    next_ += 2;
    std::string path = "/t/Echo";
    std::string body;
    Expected& call = open_[stream];
    if (Below(2) == 0) {
      for (size_t i = Below(5); i > 0; --i) {
        body += Framed(std::string(Below(3000), static_cast<char>('A' + i)));
      }
      call.body = body;
      if (body.empty()) call.status = "3";  // without a request
    } else {
      path = Below(2) == 0 ? "/t/Stream" : "/t/ThreadStream";
      const size_t count = Below(6);
      const size_t size = Below(60'000);
      body = Framed(std::to_string(count) + " " + std::to_string(size));
      for (size_t i = 0; i < count; ++i) {
        call.body += Framed(std::string(size, static_cast<char>('a' + i)));
      }
    }
    std::string frames = test::Frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, stream,
                                     test::Literals(test::Request(path)));
    for (size_t at = 0; at < body.size();) {
      const size_t piece = std::min(1 + Below(4000), body.size() - at);
      frames += test::Frame(NGHTTP2_DATA, 0, stream, body.substr(at, piece));
      at += piece;
    }
    SendCut(frames + test::Frame(NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, stream, ""));
  }

  void Reset() {
    if (open_.empty()) return;
    auto call = std::next(open_.begin(), static_cast<ptrdiff_t>(Below(open_.size())));
    client_.Reset(call->first);
    open_.erase(call);
  }

  void OpenWindow(uint32_t bytes) {
    for (const auto& [stream, call] : open_) client_.Window(stream, bytes);
  }

  void Read(milliseconds limit) {
    while (const auto frame = client_.Next(limit)) {
      std::map<std::string, std::string> fields;
      if (frame->type == NGHTTP2_HEADERS) fields = client_.Decode(*frame);
      const auto call = open_.find(frame->stream);
      if (call == open_.end()) continue;
      ASSERT_NE(frame->type, NGHTTP2_RST_STREAM) << frame->Number();
      if (frame->type == NGHTTP2_DATA) call->second.got += frame->payload;
      if (!frame->end()) continue;
      ASSERT_EQ(fields["grpc-status"], call->second.status);
      ASSERT_TRUE(call->second.got == call->second.body) << frame->stream;
      open_.erase(call);
    }
  }

  std::mt19937 random_;
  RawClient client_;
  uint32_t next_ = 1;
  std::map<uint32_t, Expected> open_;
};

TEST(ServerModel, RandomCallsGetWhatWasSent) {
  const TestServer server;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Model(server, seed).Run();
    if (HasFailure()) return;
  }
  EXPECT_TRUE(TestServer::Soon([&] { return server.counts.open == 0; }));
  EXPECT_TRUE(TestServer::Soon([&] { return server.server->connections() == 0; }));
  EXPECT_LE(server.server->memory(), size_t{2} * 70'000) << "each loop's chunk alone";
}

}  // namespace server_model_test
}  // namespace cbt::rpc::http2

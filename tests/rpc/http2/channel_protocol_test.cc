// The rules of gRPC's HTTP/2 mapping that a channel must keep, frame by frame, and what it must
// accept from an HTTP/2 server. tests/rpc/conformance/protocol.csv lists them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cbt/units.h"
#include "rpc/http2/channel.h"
#include "tests/rpc/http2/collector.h"
#include "tests/rpc/http2/raw_server.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::rpc::http2 {
namespace channel_protocol_test {

using absl::StatusCode;
using std::chrono::seconds;
using test::Collector;
using test::DataFrame;
using test::FieldList;
using test::Frame;
using test::HeadersFrame;
using test::MessageBytes;
using test::RawConnection;
using test::RawServer;

const FieldList kHead = {{":status", "200"}, {"content-type", "application/grpc"}};

// The answer of stream 1.
std::string Answer(const std::string& message) {
  return HeadersFrame(kHead) + DataFrame(MessageBytes(message)) +
         HeadersFrame({{"grpc-status", "0"}}, true);
}

std::string WithStream(std::string frame, char stream) {
  frame[8] = stream;
  return frame;
}

FieldList Decode(const std::string& block) {
  nghttp2_hd_inflater* inflater = nullptr;
  nghttp2_hd_inflate_new(&inflater);
  FieldList fields;
  std::string_view rest = block;
  for (;;) {
    nghttp2_nv field;
    int flags = 0;
    const ssize_t used = nghttp2_hd_inflate_hd2(
        inflater, &field, &flags, reinterpret_cast<const uint8_t*>(rest.data()), rest.size(), 1);
    if (used < 0) throw std::runtime_error("HPACK");
    rest.remove_prefix(static_cast<size_t>(used));
    if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
      fields.emplace_back(std::string(reinterpret_cast<char*>(field.name), field.namelen),
                          std::string(reinterpret_cast<char*>(field.value), field.valuelen));
    }
    if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) break;
  }
  nghttp2_hd_inflate_end_headers(inflater);
  nghttp2_hd_inflate_del(inflater);
  return fields;
}

class ChannelProtocol : public testing::Test {
 protected:
  std::shared_ptr<Channel> MakeOne() const {
    return test::ValueOf(MakeChannel(test::ValueOf(net::ParseAddress("unix:" + (dir / "s"))), {}));
  }
  const test::TempDir dir;
};

TEST_F(ChannelProtocol, RequestsAreThoseOfTheDocument) {
  for (const bool limited : {false, true}) {
    FieldList fields;
    std::string body;
    int headers = 0;
    bool push_is_off = false;
    const RawServer server(dir / "s", [&](RawConnection& connection) {
      while (const auto frame = connection.Next()) {
        // SETTINGS_ENABLE_PUSH 0.
        if (frame->type == 4 && (frame->flags & 1) == 0) {
          push_is_off = frame->payload.find(std::string("\0\2\0\0\0\0", 6)) != std::string::npos;
        }
        if (frame->type == 1) {
          EXPECT_EQ(frame->stream % 2, 1U);
          fields = Decode(frame->payload);
          ++headers;
        }
        if (frame->type == 0) body += frame->payload;
        if (frame->type <= 1 && (frame->flags & 1) != 0) break;
      }
      connection.Send(test::SettingsFrame() + Answer("x"));
      connection.AwaitClose();
    });
    auto channel = MakeOne();
    Collector collector;
    const auto call = channel->NewCall(
        limited ? Deadline(std::chrono::system_clock::now() + seconds(60)) : Deadline());
    call->Start("/a.B/C", "request", collector);
    EXPECT_OK(collector.Await());
    channel = nullptr;
    EXPECT_EQ(headers, 1);
    EXPECT_TRUE(push_is_off);
    EXPECT_EQ(body, MessageBytes("request"));
    ASSERT_EQ(fields.size(), limited ? 9U : 8U);
    EXPECT_EQ(fields[0], std::make_pair(std::string(":method"), std::string("POST")));
    EXPECT_EQ(fields[1], std::make_pair(std::string(":scheme"), std::string("http")));
    EXPECT_EQ(fields[2], std::make_pair(std::string(":path"), std::string("/a.B/C")));
    EXPECT_EQ(fields[3], std::make_pair(std::string(":authority"), std::string("localhost")));
    EXPECT_EQ(fields[4], std::make_pair(std::string("te"), std::string("trailers")));
    EXPECT_EQ(fields[5],
              std::make_pair(std::string("content-type"), std::string("application/grpc")));
    EXPECT_EQ(fields[6].first, "user-agent");
    EXPECT_THAT(fields[6].second, testing::StartsWith("grpc-c++-cbt/"));
    EXPECT_EQ(fields[7],
              std::make_pair(std::string("grpc-accept-encoding"), std::string("identity")));
    if (!limited) continue;
    EXPECT_EQ(fields[8].first, "grpc-timeout");
    EXPECT_THAT(fields[8].second, testing::MatchesRegex("[0-9]+[num]"));
  }
}

TEST_F(ChannelProtocol, PingsAreAnsweredAndSettingsAcknowledged) {
  std::string pong;
  int acknowledged = 0;
  const RawServer server(dir / "s", [&](RawConnection& connection) {
    if (!connection.AwaitRequest()) return;
    connection.Send(test::SettingsFrame() + Frame(6, 0, 0, "payload!"));
    while (pong.empty() || acknowledged == 0) {
      const auto frame = connection.Next();
      if (!frame.has_value()) return;
      if (frame->type == 4 && (frame->flags & 1) != 0) ++acknowledged;
      if (frame->type == 6 && (frame->flags & 1) != 0) pong = frame->payload;
    }
    connection.Send(Answer("x"));
    connection.AwaitClose();
  });
  auto channel = MakeOne();
  Collector collector;
  const auto call = channel->NewCall({});
  call->Start("/a.B/C", "", collector);
  EXPECT_OK(collector.Await());
  channel = nullptr;
  EXPECT_EQ(pong, "payload!");
  EXPECT_EQ(acknowledged, 1);
}

TEST_F(ChannelProtocol, UnknownFramesAndPaddingAreNoPartOfAnAnswer) {
  const RawServer server(dir / "s", [&](RawConnection& connection) {
    if (!connection.AwaitRequest()) return;
    const std::string block = test::FieldBytes(kHead);
    connection.Send(test::SettingsFrame() + Frame(0x42, 255, 0, "strange") +
                    Frame(1, 8, 1, std::string("\2") + block.substr(0, 9) + std::string(2, '\0')) +
                    Frame(9, 4, 1, block.substr(9)) + Frame(0x42, 255, 1, "strange") +
                    Frame(0, 8, 1, std::string("\4") + MessageBytes("one") + std::string(4, '\0')) +
                    Frame(0, 0x70, 1, MessageBytes("two")) +
                    HeadersFrame({{"grpc-status", "0"}}, true));
    connection.AwaitClose();
  });
  auto channel = MakeOne();
  Collector collector;
  const auto call = channel->NewCall({});
  call->Start("/a.B/C", "", collector);
  EXPECT_OK(collector.Await());
  EXPECT_EQ(collector.messages(), (std::vector<std::string>{"one", "two"}));
  channel = nullptr;
}

TEST_F(ChannelProtocol, FramesThatBreakHttp2EndTheConnection) {
  const std::string broken[] = {
      Frame(5, 4, 1, test::Number(2) + test::FieldBytes({{":method", "GET"}})),  // a push
      Frame(0, 0, 1, std::string(256 * kKiB + 1, 'x')), Frame(6, 0, 0, "1234567"),
      Frame(0, 0, 0, "x"), HeadersFrame(kHead) + Frame(8, 0, 0, test::Number(0x7fffffff))};
  for (size_t i = 0; i < std::size(broken); ++i) {
    SCOPED_TRACE(i);
    int code = -1;
    auto server = std::make_unique<RawServer>(dir / "s", [&](RawConnection& connection) {
      if (!connection.AwaitRequest()) return;
      // Together with the acknowledgement of the client's SETTINGS, which disable push.
      connection.Send(test::SettingsFrame() + Frame(4, 1, 0, "") + broken[i]);
      while (const auto frame = connection.Next()) {
        if (frame->type == 7) code = static_cast<uint8_t>(frame->payload.at(7));
      }
    });
    auto channel = MakeOne();
    Collector collector;
    const auto call = channel->NewCall({});
    call->Start("/a.B/C", "", collector);
    EXPECT_EQ(collector.Await().code(), StatusCode::kUnavailable) << collector.Await();
    channel = nullptr;
    server = nullptr;
    // PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR.
    EXPECT_TRUE(code == 1 || code == 3 || code == 6) << code;
  }
}

TEST_F(ChannelProtocol, ServersOfAnotherProtocolAreNamed) {
  const struct {
    std::string first;
    std::string text;
    bool waiting_may_help;
  } servers[] = {
      // An alert: fatal, protocol_version.
      {{"\x15\x03\x03\x00\x02\x02\x46", 7}, "the server speaks TLS", false},
      {"HTTP/1.0 400 Bad Request\r\n\r\n", "the server speaks HTTP/1", false},
      {"", "the server has said nothing", true},
  };
  for (const auto& [first, text, waiting_may_help] : servers) {
    SCOPED_TRACE(text);
    auto server = std::make_unique<RawServer>(
        dir / "s", [&hello = first](RawConnection& connection) { connection.Send(hello); });
    auto channel = MakeOne();
    Collector collector;
    const auto call = channel->NewCall({});
    call->Start("/a.B/C", "", collector);
    const absl::Status status = collector.Await();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(text));
    EXPECT_EQ(channel->IsTransient(), waiting_may_help);
    channel = nullptr;
    server = nullptr;
  }
}

TEST_F(ChannelProtocol, ARequestKeepsToTheServersWindow) {
  std::string body;
  size_t longest = 0;
  const RawServer server(dir / "s", [&](RawConnection& connection) {
    // SETTINGS_INITIAL_WINDOW_SIZE 7.
    connection.Send(Frame(4, 0, 0, std::string("\0\4\0\0\0\7", 6)));
    while (const auto frame = connection.Next()) {
      if (frame->type != 0) continue;
      longest = std::max(longest, frame->payload.size());
      body += frame->payload;
      if ((frame->flags & 1) != 0) break;
      connection.Send(Frame(8, 0, 1, test::Number(static_cast<uint32_t>(frame->payload.size()))));
    }
    connection.Send(Answer("x"));
    connection.AwaitClose();
  });
  auto channel = MakeOne();
  ASSERT_OK(channel->Connect(std::chrono::system_clock::now() + seconds(20)));
  Collector collector;
  const auto call = channel->NewCall({});
  const std::string request(100, 'r');
  call->Start("/a.B/C", request, collector);
  EXPECT_OK(collector.Await());
  channel = nullptr;
  EXPECT_EQ(body, MessageBytes(request));
  EXPECT_EQ(longest, 7U);
}

// The server does not have to refuse the second call: it never sees it.
TEST_F(ChannelProtocol, TheServersLimitOfStreamsIsKept) {
  std::atomic<int> open = 0;
  std::atomic<int> most = 0;
  std::atomic<int> served = 0;
  const RawServer server(dir / "s", [&](RawConnection& connection) {
    // SETTINGS_MAX_CONCURRENT_STREAMS 1.
    connection.Send(Frame(4, 0, 0, std::string("\0\3\0\0\0\1", 6)));
    while (const auto frame = connection.Next()) {
      if (frame->type == 1) most = std::max<int>(most, ++open);
      if (frame->type > 1 || (frame->flags & 1) == 0) continue;
      --open;
      ++served;
      const auto stream = static_cast<char>(frame->stream);
      connection.Send(WithStream(HeadersFrame(kHead), stream) +
                      WithStream(HeadersFrame({{"grpc-status", "0"}}, true), stream));
    }
  });
  auto channel = MakeOne();
  ASSERT_OK(channel->Connect(std::chrono::system_clock::now() + seconds(20)));
  constexpr int kCalls = 10;
  std::vector<std::unique_ptr<Collector>> collectors;
  std::vector<std::unique_ptr<ClientCall>> calls;
  for (int i = 0; i < kCalls; ++i) {
    collectors.push_back(std::make_unique<Collector>());
    calls.push_back(channel->NewCall({}));
    calls.back()->Start("/a.B/C", "", *collectors.back());
  }
  for (const auto& collector : collectors) EXPECT_OK(collector->Await());
  channel = nullptr;
  EXPECT_EQ(served, kCalls);
  EXPECT_EQ(most, 1);
}

// A limit of 0 is for a moment; after that the connection is given up, and calls go on with
// another.
TEST_F(ChannelProtocol, ZAAServerThatTakesNoStreamsIsLeft) {
  std::atomic<int> served = 0;
  const RawServer server(dir / "s", [&, first = true](RawConnection& connection) mutable {
    if (std::exchange(first, false)) {
      connection.Send(Frame(4, 0, 0, std::string("\0\3\0\0\0\0", 6)));
      return connection.AwaitClose();
    }
    connection.Send(test::SettingsFrame());
    while (connection.AwaitRequest()) {
      connection.Send(Answer("one"));
      ++served;
    }
  });
  auto channel = test::ValueOf(MakeChannel(test::ValueOf(net::ParseAddress("unix:" + (dir / "s"))),
                                           {}, {.connect_time = std::chrono::milliseconds(300)}));
  ASSERT_OK(channel->Connect(std::chrono::system_clock::now() + seconds(20)));
  Collector waits;
  const auto waiting = channel->NewCall({});
  waiting->Start("/a.B/C", "", waits);
  EXPECT_EQ(waits.Await().code(), StatusCode::kUnavailable);
  Collector served_then;
  const auto next = channel->NewCall(std::chrono::system_clock::now() + seconds(20));
  next->Start("/a.B/C", "", served_then);
  EXPECT_OK(served_then.Await());
  channel = nullptr;
  EXPECT_EQ(served, 1);
}

// It may say so for a moment.
TEST_F(ChannelProtocol, ZAALimitOfZeroForAMomentIsWaitedFor) {
  const RawServer server(dir / "s", [&](RawConnection& connection) {
    connection.Send(Frame(4, 0, 0, std::string("\0\3\0\0\0\0", 6)));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    connection.Send(Frame(4, 0, 0, std::string("\0\3\0\0\0\1", 6)));
    while (connection.AwaitRequest()) connection.Send(Answer("one"));
  });
  auto channel = MakeOne();
  ASSERT_OK(channel->Connect(std::chrono::system_clock::now() + seconds(20)));
  Collector waits;
  const auto call = channel->NewCall(std::chrono::system_clock::now() + seconds(20));
  call->Start("/a.B/C", "", waits);
  EXPECT_OK(waits.Await());
  EXPECT_EQ(server.accepted(), 1);
  channel = nullptr;
}

// A call without a reader costs the server nothing.
TEST_F(ChannelProtocol, ACancelledCallResetsItsStreamAndNoOther) {
  std::atomic<int> code = -1;
  const RawServer server(dir / "s", [&](RawConnection& connection) {
    connection.Send(test::SettingsFrame());
    int requests = 0;
    while (const auto frame = connection.Next()) {
      if (frame->type <= 1 && (frame->flags & 1) != 0 && ++requests == 2) {
        connection.Send(HeadersFrame(kHead) + DataFrame(MessageBytes("one")));
      }
      if (frame->type != 3) continue;
      EXPECT_EQ(frame->stream, 1U);
      code = static_cast<uint8_t>(frame->payload.at(3));
      connection.Send(WithStream(HeadersFrame(kHead), 3) +
                      WithStream(HeadersFrame({{"grpc-status", "0"}}, true), 3));
    }
  });
  auto channel = MakeOne();
  ASSERT_OK(channel->Connect(std::chrono::system_clock::now() + seconds(20)));
  Collector first;
  Collector second;
  const auto cancelled = channel->NewCall({});
  const auto other = channel->NewCall({});
  cancelled->Start("/a.B/C", "", first);
  other->Start("/a.B/C", "", second);
  ASSERT_TRUE(first.AwaitMessages(1));
  cancelled->Cancel();
  EXPECT_EQ(first.Await().code(), StatusCode::kCancelled);
  EXPECT_OK(second.Await());
  channel = nullptr;
  EXPECT_EQ(code, 8);
}

// After GOAWAY a new call uses a new connection.
TEST_F(ChannelProtocol, ADrainingServerGetsNoNewCalls) {
  const RawServer server(dir / "s", [&](RawConnection& connection) {
    if (!connection.AwaitRequest()) return;
    connection.Send(test::SettingsFrame() + test::GoawayFrame(0x7fffffff) + Answer("x"));
    EXPECT_FALSE(connection.AwaitRequest());
  });
  auto channel = MakeOne();
  for (int i = 1; i <= 3; ++i) {
    Collector collector;
    const auto call = channel->NewCall({});
    call->Start("/a.B/C", "", collector);
    EXPECT_OK(collector.Await());
    EXPECT_EQ(server.accepted(), i);
  }
  channel = nullptr;
}

}  // namespace channel_protocol_test
}  // namespace cbt::rpc::http2

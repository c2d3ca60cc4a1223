// Malformed answers: each ends in an error and never changes what came before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rpc/http2/channel.h"
#include "tests/rpc/http2/collector.h"
#include "tests/rpc/http2/raw_server.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::rpc::http2 {
namespace channel_answers_test {

using absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Collector;
using test::DataFrame;
using test::FieldList;
using test::Frame;
using test::GoawayFrame;
using test::HeadersFrame;
using test::MessageBytes;
using test::RawConnection;
using test::RawServer;
using test::ResetFrame;
using testing::HasSubstr;

const FieldList kHead = {{":status", "200"}, {"content-type", "application/grpc"}};

std::string Head() { return HeadersFrame(kHead); }
std::string Trailers(const FieldList& fields = {{"grpc-status", "0"}}) {
  return HeadersFrame(fields, true);
}

std::shared_ptr<Channel> ChannelTo(const std::string& path, const ChannelOptions& options = {}) {
  return test::ValueOf(MakeChannel(test::ValueOf(net::ParseAddress("unix:" + path)), {}, options));
}

class ChannelAnswers : public testing::Test {
 protected:
  struct Outcome {
    absl::Status status;
    std::vector<std::string> messages;
  };

  // The outcome of a call whose answer is `bytes`, after SETTINGS. The server then waits for the
  // client to leave, or closes the connection.
  Outcome Ask(const std::string& bytes, bool close = false, Deadline deadline = {}) const {
    const RawServer server(dir / "s", [&](RawConnection& connection) {
      if (!connection.AwaitRequest()) return;
      connection.Send(test::SettingsFrame() + bytes);
      if (!close) connection.AwaitClose();
    });
    std::shared_ptr<Channel> channel = ChannelTo(dir / "s");
    Collector collector;
    const std::unique_ptr<ClientCall> call = channel->NewCall(deadline);
    call->Start("/a.B/C", "request", collector);
    Outcome outcome{.status = collector.Await(), .messages = collector.messages()};
    channel = nullptr;
    return outcome;
  }

  // Expects an error with this code, after the first messages or before any.
  void Refused(const std::string& what, const std::string& bytes, StatusCode code,
               const std::string& text = "", const std::vector<std::string>& sent = {}) const {
    const Outcome outcome = Ask(bytes);
    EXPECT_EQ(outcome.status.code(), code) << what << ": " << outcome.status;
    EXPECT_THAT(std::string(outcome.status.message()), HasSubstr(text)) << what;
    ASSERT_LE(outcome.messages.size(), sent.size()) << what;
    for (size_t i = 0; i < outcome.messages.size(); ++i) {
      EXPECT_EQ(outcome.messages[i], sent[i]) << what;
    }
  }

  const test::TempDir dir;
};

TEST_F(ChannelAnswers, AGoodOneIsOk) {
  const Outcome outcome = Ask(Head() + DataFrame(MessageBytes("one") + MessageBytes("")) +
                              DataFrame("") + DataFrame(MessageBytes("three")) +
                              Trailers({{"grpc-status", "0"}, {"grpc-message", ""}}));
  EXPECT_OK(outcome.status);
  EXPECT_EQ(outcome.messages, (std::vector<std::string>{"one", "", "three"}));
  EXPECT_OK(Ask(Head() + Trailers()).status);
  FieldList only = kHead;
  only.emplace_back("grpc-status", "0");
  EXPECT_OK(Ask(HeadersFrame(only, true)).status);
  // An interim response is not the answer.
  EXPECT_OK(Ask(HeadersFrame({{":status", "103"}}) + Head() + Trailers()).status);
}

TEST_F(ChannelAnswers, TheServersErrorIsPassedOn) {
  Refused("trailers",
          Head() + DataFrame(MessageBytes("one")) +
              Trailers({{"grpc-status", "5"}, {"grpc-message", "100%25 \xc3%A4"}}),
          StatusCode::kNotFound, "100% \xc3\xa4", {"one"});
  FieldList only = kHead;
  only.emplace_back("grpc-status", "16");
  only.emplace_back("grpc-message", "who?");
  Refused("trailers only", HeadersFrame(only, true), StatusCode::kUnauthenticated, "who?");
  Refused("cut message",
          Head() + DataFrame(MessageBytes("one").substr(0, 6)) + Trailers({{"grpc-status", "8"}}),
          StatusCode::kResourceExhausted);
}

TEST_F(ChannelAnswers, WithoutAStatusNothingIsOk) {
  const std::string one = Head() + DataFrame(MessageBytes("one"));
  Refused("no trailers", Head() + DataFrame(MessageBytes("one"), true), StatusCode::kUnknown,
          "without a status", {"one"});
  Refused("no trailers at all", Head() + DataFrame("", true), StatusCode::kUnknown);
  Refused("headers only", HeadersFrame(kHead, true), StatusCode::kUnknown);
  Refused("empty trailers", one + Trailers({{"x", "y"}}), StatusCode::kUnknown, "without a status",
          {"one"});
  Refused("status in the headers",
          HeadersFrame({kHead[0], kHead[1], {"grpc-status", "0"}}) +
              DataFrame(MessageBytes("one"), true),
          StatusCode::kUnknown, "", {"one"});
  Refused("twice", one + Trailers({{"grpc-status", "0"}, {"grpc-status", "0"}}),
          StatusCode::kUnknown, "more than once", {"one"});
  for (const char* text : {"", "00", "zero", "-0", "0 0", "17", "4294967296"}) {
    Refused(text, one + Trailers({{"grpc-status", text}}), StatusCode::kUnknown, "", {"one"});
  }
}

// Headers and trailers are one answer with one status, whatever the trailers say.
TEST_F(ChannelAnswers, LBAStatusBeforeTheEndIsNoSuccess) {
  const std::string body = DataFrame(MessageBytes("one"));
  for (const char* early : {"0", "14", "zero", ""}) {
    FieldList head = kHead;
    head.emplace_back("grpc-status", early);
    const std::string begin = HeadersFrame(head);
    for (const char* late : {"0", "14"}) {
      Refused(early, begin + body + Trailers({{"grpc-status", late}}), StatusCode::kUnknown,
              "status before the end");
      Refused(early, begin + Trailers({{"grpc-status", late}}), StatusCode::kUnknown);
    }
    Refused(early, begin + body + Trailers({{"x", "y"}}), StatusCode::kUnknown);
    Refused(early, begin + DataFrame("", true), StatusCode::kUnknown);
    head.emplace_back("grpc-status", "0");
    Refused(early, HeadersFrame(head) + body + Trailers(), StatusCode::kUnknown);
    Refused(early, HeadersFrame(head, true), StatusCode::kUnknown, "more than once");
  }
  // The status of an interim response does not count, and it does not end anything.
  const std::string interim = HeadersFrame({{":status", "103"}, {"grpc-status", "0"}});
  Refused("interim", interim + Head() + body + DataFrame("", true), StatusCode::kUnknown, "",
          {"one"});
  Refused("interim", interim + Head() + body + Trailers({{"grpc-status", "14"}}),
          StatusCode::kUnavailable, "", {"one"});
}

TEST_F(ChannelAnswers, LBOneHttpStatusAndOneContentType) {
  const std::string rest = DataFrame(MessageBytes("one")) + Trailers();
  for (const char* other : {"200", "503"}) {
    for (const bool first : {true, false}) {
      FieldList head = kHead;
      head.insert(first ? head.begin() : head.begin() + 1, {":status", other});
      EXPECT_FALSE(Ask(HeadersFrame(head) + rest).status.ok()) << other;
    }
  }
  EXPECT_FALSE(Ask(HeadersFrame({kHead[1]}) + rest).status.ok());
  EXPECT_FALSE(Ask(Head() + DataFrame(MessageBytes("one")) +
                   Trailers({{":status", "200"}, {"grpc-status", "0"}}))
                   .status.ok());
  for (const char* other : {"application/grpc", "text/html"}) {
    for (const bool first : {true, false}) {
      FieldList head = kHead;
      head.insert(first ? head.begin() + 1 : head.end(), {"content-type", other});
      Refused(other, HeadersFrame(head) + rest, StatusCode::kUnknown, "not of gRPC");
    }
  }
}

TEST_F(ChannelAnswers, ACutMessageIsNotTheEnd) {
  for (size_t cut = 1; cut < MessageBytes("two").size(); ++cut) {
    const std::string start =
        Head() + DataFrame(MessageBytes("one") + MessageBytes("two").substr(0, cut));
    Refused("trailers", start + Trailers(), StatusCode::kInternal, "within a message", {"one"});
    Refused("end", start + DataFrame("", true), StatusCode::kUnknown, "", {"one"});
  }
  // A length prefix that is too large or too small.
  std::string lie = MessageBytes("one");
  lie[4] = 4;
  Refused("longer", Head() + DataFrame(lie) + Trailers(), StatusCode::kInternal,
          "within a message");
  lie[4] = 2;
  Refused("shorter", Head() + DataFrame(lie) + Trailers(), StatusCode::kInternal, "", {"on"});
}

TEST_F(ChannelAnswers, MessagesThatCantBeRead) {
  Refused(
      "compressed", Head() + DataFrame(MessageBytes("one") + MessageBytes("two", 1)) + Trailers(),
      StatusCode::kUnimplemented,
      "the server compresses messages, which this client does not support: turn compression off",
      {"one"});
  Refused("flag", Head() + DataFrame(MessageBytes("one", 7)) + Trailers(), StatusCode::kInternal,
          "not a message");
  Refused("4 GiB", Head() + DataFrame(std::string("\0\xff\xff\xff\xff", 5)),
          StatusCode::kResourceExhausted, "limit");
  Refused("limit", Head() + DataFrame(std::string("\0\0\x40\0\1", 5)),
          StatusCode::kResourceExhausted, "limit");
}

TEST_F(ChannelAnswers, OtherAnswersOfHttp) {
  const auto html = [](const char* status) {
    return HeadersFrame({{":status", status}, {"content-type", "text/html"}}) +
           DataFrame(MessageBytes("<html>"), true);
  };
  Refused("200", html("200"), StatusCode::kUnknown, "not of gRPC");
  Refused("401", html("401"), StatusCode::kUnauthenticated, "HTTP status 401");
  Refused("403", html("403"), StatusCode::kPermissionDenied, "HTTP status 403");
  Refused("404", html("404"), StatusCode::kUnimplemented, "HTTP status 404");
  Refused("429", html("429"), StatusCode::kUnavailable, "HTTP status 429");
  Refused("500", html("500"), StatusCode::kUnknown, "HTTP status 500");
  Refused("503", html("503"), StatusCode::kUnavailable, "HTTP status 503");
  Refused("503, alone", HeadersFrame({{":status", "503"}}, true), StatusCode::kUnavailable, "503");
  const auto only = [](const char* http, const char* type, const char* status) {
    return HeadersFrame({{":status", http}, {"content-type", type}, {"grpc-status", status}}, true);
  };
  Refused("grpc-status counts", only("503", "application/grpc", "7"),
          StatusCode::kPermissionDenied);
  Refused("but is no success", only("503", "application/grpc", "0"), StatusCode::kUnavailable);
  Refused("of what is not gRPC", only("200", "text/html", "0"), StatusCode::kUnknown);
  Refused("no status", HeadersFrame({{"content-type", "application/grpc"}}), StatusCode::kInternal);
}

TEST_F(ChannelAnswers, FramesOutOfOrder) {
  // HTTP/2 treats it as a connection error.
  Refused("data first", DataFrame(MessageBytes("one")) + Head() + Trailers(),
          StatusCode::kUnavailable, "PROTOCOL_ERROR");
  Refused("headers twice", Head() + Head() + Trailers(), StatusCode::kInternal);
  Refused("pseudo-header in trailers",
          Head() + Trailers({{":status", "200"}, {"grpc-status", "0"}}), StatusCode::kInternal);
  Refused("metadata", Head() + Trailers({{"grpc-status", "0"}, {"x-bin", "A"}}),
          StatusCode::kInternal, "base64");
}

TEST_F(ChannelAnswers, Resets) {
  const StatusCode codes[] = {
      StatusCode::kInternal,         StatusCode::kInternal,    StatusCode::kInternal,
      StatusCode::kInternal,         StatusCode::kInternal,    StatusCode::kInternal,
      StatusCode::kInternal,         StatusCode::kUnavailable, StatusCode::kCancelled,
      StatusCode::kInternal,         StatusCode::kInternal,    StatusCode::kResourceExhausted,
      StatusCode::kPermissionDenied, StatusCode::kInternal,    StatusCode::kInternal};
  for (uint32_t code = 0; code < std::size(codes); ++code) {
    Refused("at once", ResetFrame(code), codes[code]);
    Refused("after a message", Head() + DataFrame(MessageBytes("one")) + ResetFrame(code),
            codes[code], "", {"one"});
    Refused("within a message",
            Head() + DataFrame(MessageBytes("one").substr(0, 6)) + ResetFrame(code), codes[code]);
  }
  EXPECT_OK(Ask(Head() + Trailers() + ResetFrame(0)).status);
}

TEST_F(ChannelAnswers, Goaway) {
  Refused("excluded", GoawayFrame(0), StatusCode::kUnavailable);
  Refused("excluded with a reason", GoawayFrame(0, 11), StatusCode::kUnavailable);
  // A stream that GOAWAY does not exclude continues.
  const Outcome outcome =
      Ask(GoawayFrame(1) + Head() + DataFrame(MessageBytes("one")) + Trailers());
  EXPECT_OK(outcome.status);
  EXPECT_EQ(outcome.messages.size(), 1U);
  EXPECT_EQ(Ask(Head() + GoawayFrame(1) + DataFrame(MessageBytes("one")), true).status.code(),
            StatusCode::kUnavailable);
}

TEST_F(ChannelAnswers, EndlessHeadersAreRefused) {
  FieldList fields = kHead;
  for (int i = 0; i < 140; ++i) fields.emplace_back("x" + std::to_string(i), std::string(100, 'x'));
  Refused("long", HeadersFrame(fields) + Trailers(), StatusCode::kResourceExhausted,
          "headers exceed");
  fields[0] = {"grpc-status", "0"};
  Refused("long trailers", Head() + Trailers(fields), StatusCode::kResourceExhausted,
          "headers exceed");
  // An endless header block.
  std::string endless = Frame(1, 0, 1, test::FieldBytes(kHead));
  for (int i = 0; i < 3000; ++i)
    endless += Frame(9, 0, 1, test::FieldBytes({{"x", std::string(100, 'x')}}));
  const Outcome outcome = Ask(endless);
  EXPECT_FALSE(outcome.status.ok());
}

TEST_F(ChannelAnswers, BytesThatAreNotHttp2) {
  for (const char* text :
       {"HTTP/1.1 400 Bad Request\r\n\r\n", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"}) {
    const RawServer server(dir / "s", [&](RawConnection& connection) {
      connection.Send(text);
      connection.AwaitClose();
    });
    const std::shared_ptr<Channel> channel = ChannelTo(dir / "s");
    Collector collector;
    const auto call = channel->NewCall({});
    call->Start("/a.B/C", "", collector);
    EXPECT_EQ(collector.Await().code(), StatusCode::kUnavailable) << collector.Await();
    EXPECT_THAT(std::string(collector.Await().message()), HasSubstr(dir / "s"));
  }
}

// Only the complete answer is a success.
TEST_F(ChannelAnswers, CutAtEveryByte) {
  const std::vector<std::string> sent = {"one", "", "three"};
  std::string answer = Head();
  for (const std::string& message : sent) answer += DataFrame(MessageBytes(message));
  answer += Trailers({{"grpc-status", "0"}, {"x", "y"}});
  for (size_t cut = 0; cut <= answer.size(); ++cut) {
    const Outcome outcome = Ask(answer.substr(0, cut), true);
    EXPECT_EQ(outcome.status.code(),
              cut == answer.size() ? StatusCode::kOk : StatusCode::kUnavailable)
        << cut << ' ' << outcome.status;
    ASSERT_LE(outcome.messages.size(), sent.size());
    for (size_t i = 0; i < outcome.messages.size(); ++i) EXPECT_EQ(outcome.messages[i], sent[i]);
  }
}

// The same bytes sent one at a time give the same answer.
TEST_F(ChannelAnswers, DribbledAnswersAreWhole) {
  const RawServer server(dir / "s", [&](RawConnection& connection) {
    if (!connection.AwaitRequest()) return;
    const std::string bytes = test::SettingsFrame() + Head() + DataFrame(MessageBytes("one")) +
                              DataFrame(MessageBytes("two")) + Trailers();
    for (const char c : bytes) connection.Send(std::string(1, c));
    connection.AwaitClose();
  });
  std::shared_ptr<Channel> channel = ChannelTo(dir / "s");
  Collector collector(1);
  const auto call = channel->NewCall({});
  call->Start("/a.B/C", "", collector);
  EXPECT_TRUE(collector.AwaitMessages(1));
  call->ReadOn();
  EXPECT_TRUE(collector.AwaitMessages(2));
  EXPECT_FALSE(collector.ended());
  call->ReadOn();
  EXPECT_OK(collector.Await());
  channel = nullptr;
}

TEST_F(ChannelAnswers, AServerThatStopsIsLeftAtTheDeadline) {
  for (const std::string& bytes : {std::string(), Head(), Head() + DataFrame(MessageBytes("one")),
                                   Head() + DataFrame(MessageBytes("one").substr(0, 3))}) {
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome = Ask(bytes, false, std::chrono::system_clock::now() + milliseconds(100));
    EXPECT_EQ(outcome.status.code(), StatusCode::kDeadlineExceeded) << outcome.status;
    EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(90));
  }
}

TEST_F(ChannelAnswers, AServerThatNeverAcceptsIsLeftAtTheDeadline) {
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  (dir / "s").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 0), 0);
  std::vector<std::shared_ptr<Channel>> channels;
  // The first ones are in the listen queue; others wait for a place in it.
  for (int i = 0; i < 4; ++i) {
    channels.push_back(ChannelTo(dir / "s"));
    Collector collector;
    const auto call =
        channels.back()->NewCall(std::chrono::system_clock::now() + milliseconds(100));
    call->Start("/a.B/C", "", collector);
    EXPECT_EQ(collector.Await().code(), StatusCode::kDeadlineExceeded);
    const absl::Status status =
        channels.back()->Connect(std::chrono::system_clock::now() + milliseconds(50));
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr(dir / "s"));
  }
  channels.clear();
  close(listener);
}

TEST_F(ChannelAnswers, AConnectionThatIsNeverReadyFailsInTime) {
  const RawServer server(dir / "s", [&](RawConnection& connection) { connection.AwaitClose(); });
  std::shared_ptr<Channel> channel = ChannelTo(dir / "s", {.connect_time = milliseconds(100)});
  Collector collector;
  const auto call = channel->NewCall({});
  call->Start("/a.B/C", "", collector);
  EXPECT_EQ(collector.Await().code(), StatusCode::kUnavailable) << collector.Await();
  channel = nullptr;
}

TEST_F(ChannelAnswers, ADeadServerIsNoticed) {
  const RawServer server(dir / "s", [&](RawConnection& connection) {
    if (!connection.AwaitRequest()) return;
    connection.Send(test::SettingsFrame() + Head());
    connection.AwaitClose();
  });
  std::shared_ptr<Channel> channel = ChannelTo(
      dir / "s", {.keepalive_time = milliseconds(50), .keepalive_timeout = milliseconds(50)});
  Collector collector;
  const auto call = channel->NewCall({});
  call->Start("/a.B/C", "", collector);
  EXPECT_EQ(collector.Await().code(), StatusCode::kUnavailable) << collector.Await();
  channel = nullptr;
}

TEST_F(ChannelAnswers, MetadataIsKept) {
  const RawServer server(dir / "s", [&](RawConnection& connection) {
    if (!connection.AwaitRequest()) return;
    FieldList head = kHead;
    head.insert(head.end(),
                {{"a", "1"}, {"b", "2"}, {"b", "2"}, {"c-bin", "AAE"}, {"d-bin", "AAE=,AA"}});
    connection.Send(test::SettingsFrame() + HeadersFrame(head) + DataFrame(MessageBytes("one")) +
                    Trailers({{"grpc-status", "0"}, {"a", "3"}, {"e-bin", ""}}));
    connection.AwaitClose();
  });
  std::shared_ptr<Channel> channel = ChannelTo(dir / "s");
  Collector collector;
  const auto call = channel->NewCall({});
  collector.on_message = [&] { EXPECT_EQ(call->Initial("a"), "1"); };
  call->Start("/a.B/C", "", collector);
  ASSERT_OK(collector.Await());
  EXPECT_EQ(call->Initial("b"), "given more than once");
  EXPECT_EQ(call->Initial("c-bin"), std::string_view("\0\1", 2));
  EXPECT_EQ(call->Initial("d-bin"), "given more than once");
  EXPECT_EQ(call->Initial("grpc-status"), std::nullopt);
  EXPECT_EQ(call->Initial(":status"), std::nullopt);
  // Once in each: a value that differs must not be overlooked.
  EXPECT_EQ(call->Trailing("a"), "given more than once");
  EXPECT_EQ(call->Trailing("e-bin"), "");
  EXPECT_EQ(call->Trailing("b"), std::nullopt);
  channel = nullptr;
}

}  // namespace channel_answers_test
}  // namespace cbt::rpc::http2

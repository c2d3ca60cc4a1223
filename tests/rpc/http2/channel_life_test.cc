// Life cycles of channels and calls: stops, cancellation, deadlines, destruction at any time,
// servers that come and go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rpc/http2/channel.h"
#include "tests/rpc/http2/collector.h"
#include "tests/rpc/http2/raw_server.h"
#include "tests/rpc/http2/test_service.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::rpc::http2 {
namespace channel_life_test {

using absl::StatusCode;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Collector;
using test::DataFrame;
using test::HeadersFrame;
using test::MessageBytes;
using test::RawConnection;
using test::RawServer;
using testing::HasSubstr;

std::chrono::system_clock::time_point In(milliseconds time) {
  return std::chrono::system_clock::now() + time;
}

// An answer of `count` messages "0", "1" and so on.
std::string Counting(int count) {
  std::string bytes = HeadersFrame({{":status", "200"}, {"content-type", "application/grpc"}});
  for (int i = 0; i < count; ++i) bytes += DataFrame(MessageBytes(std::to_string(i)));
  return bytes + HeadersFrame({{"grpc-status", "0"}}, true);
}

class ChannelLife : public testing::Test {
 protected:
  std::shared_ptr<Channel> MakeOne(const ChannelOptions& options = {}) const {
    return test::ValueOf(
        MakeChannel(test::ValueOf(net::ParseAddress("unix:" + (dir / "s"))), {}, options));
  }

  // Sends one answer per connection.
  std::unique_ptr<RawServer> Answering(const std::string& answer) const {
    return std::make_unique<RawServer>(dir / "s", [answer](RawConnection& connection) {
      if (!connection.AwaitRequest()) return;
      connection.Send(test::SettingsFrame() + answer);
      connection.AwaitClose();
    });
  }

  const test::TempDir dir;
};

TEST_F(ChannelLife, NothingIsNeededOfWhatIsNotUsed) {
  for (int i = 0; i < 300; ++i) {
    const auto channel = MakeOne();
    if (i % 3 == 0) continue;
    const auto call = channel->NewCall({});
    if (i % 3 == 1) call->Cancel();
    call->ReadOn();
  }
}

TEST_F(ChannelLife, WithoutAServerCallsFailWithTheReason) {
  for (const bool at_once : {false, true}) {
    const auto channel = MakeOne({.reconnect_at_once = at_once});
    for (int i = 0; i < 5; ++i) {
      Collector collector;
      const auto call = channel->NewCall({});
      call->Start("/a.B/C", "", collector);
      EXPECT_EQ(collector.Await().code(), StatusCode::kUnavailable);
      EXPECT_THAT(std::string(collector.Await().message()), HasSubstr("No such file"));
    }
    const absl::Status status = channel->Connect(In(milliseconds(150)));
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr("No such file"));
  }
}

TEST_F(ChannelLife, ConnectWaitsForTheServersSettings) {
  auto channel = MakeOne();
  std::atomic<bool> sent = false;
  const RawServer server(dir / "s", [&](RawConnection& connection) {
    std::this_thread::sleep_for(milliseconds(250));
    sent = true;
    connection.Send(test::SettingsFrame());
    connection.AwaitClose();
  });
  EXPECT_OK(channel->Connect(In(seconds(20))));
  EXPECT_TRUE(sent);
  EXPECT_OK(channel->Connect(In(seconds(20))));
  EXPECT_EQ(server.accepted(), 1);
  channel = nullptr;
}

TEST_F(ChannelLife, CallsConnectAgainAfterARestart) {
  auto channel = MakeOne();
  for (int i = 0; i < 3; ++i) {
    // Closes the connection after the answer.
    const RawServer server(dir / "s", [](RawConnection& connection) {
      if (!connection.AwaitRequest()) return;
      connection.Send(test::SettingsFrame() + Counting(2));
    });
    absl::Status status;
    const auto end = In(seconds(20));
    do {
      Collector collector;
      const auto call = channel->NewCall({});
      call->Start("/a.B/C", "", collector);
      status = collector.Await();
    } while (!status.ok() && std::chrono::system_clock::now() < end);
    EXPECT_OK(status);
  }
}

// A server tolerates 200 resets per connection. When more calls might be reset, they use further
// connections, and a connection that used up its resets ends with its last call.
TEST_F(ChannelLife, CallsThatAreGivenUpAtOnceAreNoFlood) {
  ServerLimits limits;
  limits.connection.max_streams = 1000;
  const test::TestServer server(limits);
  const auto channel = test::ValueOf(
      MakeChannel(test::ValueOf(net::ParseAddress("unix:" + server.path)), {}, ChannelOptions()));
  for (int round = 0; round < 3; ++round) {
    std::deque<Collector> collectors;
    std::vector<std::unique_ptr<ClientCall>> calls;
    for (int i = 0; i < 400; ++i) {
      calls.push_back(channel->NewCall({}));
      calls.back()->Start("/t/Stuck", "x", collectors.emplace_back(1));
    }
    for (Collector& collector : collectors) EXPECT_TRUE(collector.AwaitMessages(1));
    EXPECT_EQ(server.counts.open, 400);
    for (size_t i = 1; i < calls.size(); ++i) calls[i]->Cancel();
    for (size_t i = 1; i < calls.size(); ++i) {
      EXPECT_EQ(collectors[i].Await().code(), StatusCode::kCancelled);
    }
    EXPECT_TRUE(test::TestServer::Soon([&] { return server.counts.open == 1; }));
    // The first call's connection lives, and possibly the one for the next call.
    EXPECT_TRUE(test::TestServer::Soon([&] { return server.server->connections() <= 2; }));
    EXPECT_FALSE(collectors.front().ended());
    calls.front()->Cancel();
    EXPECT_EQ(collectors.front().Await().code(), StatusCode::kCancelled);
  }
}

TEST_F(ChannelLife, AHandlerThatStopsGetsNothingUntilReadOn) {
  const auto server = Answering(Counting(10));
  auto channel = MakeOne();
  Collector collector(3);
  const auto call = channel->NewCall({});
  call->Start("/a.B/C", "", collector);
  for (const size_t stop : {size_t{3}, size_t{6}, size_t{9}}) {
    EXPECT_TRUE(collector.AwaitMessages(stop));
    std::this_thread::sleep_for(milliseconds(5));
    EXPECT_EQ(collector.messages().size(), stop);
    EXPECT_FALSE(collector.ended());
    call->ReadOn();
  }
  EXPECT_OK(collector.Await());
  EXPECT_EQ(collector.messages().size(), 10U);
  channel = nullptr;
}

TEST_F(ChannelLife, AStoppedCallEndsWhenItIsCancelledOrLate) {
  const auto server = Answering(Counting(10));
  for (const bool late : {false, true}) {
    auto channel = MakeOne();
    Collector collector(3);
    const auto call = channel->NewCall(late ? Deadline(In(milliseconds(100))) : Deadline());
    call->Start("/a.B/C", "", collector);
    EXPECT_TRUE(collector.AwaitMessages(3));
    if (!late) call->Cancel();
    // Although the server's OK has arrived.
    EXPECT_EQ(collector.Await().code(),
              late ? StatusCode::kDeadlineExceeded : StatusCode::kCancelled);
    EXPECT_EQ(collector.messages().size(), 3U);
    channel = nullptr;
  }
}

// The window is used up exactly, and opens only as messages are taken.
TEST_F(ChannelLife, TheWindowOpensAsMessagesAreTaken) {
  constexpr size_t kMessages = 64;
  constexpr size_t kMessageBytes = 16384 - 5;
  std::atomic<int> updates = 0;
  const RawServer server(dir / "s", [&](RawConnection& connection) {
    if (!connection.AwaitRequest()) return;
    // Together with the acknowledgement of the client's SETTINGS, which set the window.
    connection.Send(test::SettingsFrame() + test::Frame(4, 1, 0, ""));
    std::string bytes = HeadersFrame({{":status", "200"}, {"content-type", "application/grpc"}});
    for (size_t i = 0; i < kMessages; ++i) {
      bytes += DataFrame(MessageBytes(std::string(kMessageBytes, 'x')));
    }
    connection.Send(bytes);
    while (const auto frame = connection.Next()) {
      // WINDOW_UPDATE of the stream.
      if (frame->type != 8 || frame->stream != 1) continue;
      if (++updates == 1) connection.Send(HeadersFrame({{"grpc-status", "0"}}, true));
    }
  });
  auto channel = MakeOne();
  Collector collector(1);
  const auto call = channel->NewCall({});
  call->Start("/a.B/C", "", collector);
  ASSERT_TRUE(collector.AwaitMessages(1)) << collector.Await();
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(updates, 0);
  for (size_t i = 1; i <= kMessages; ++i) {
    ASSERT_TRUE(collector.AwaitMessages(i)) << collector.Await();
    EXPECT_EQ(collector.messages().size(), i);
    call->ReadOn();
  }
  EXPECT_OK(collector.Await());
  EXPECT_GT(updates, 0);
  channel = nullptr;
}

TEST_F(ChannelLife, ADeadlineThatHasPassedSendsNothing) {
  const auto server = Answering(Counting(1));
  auto channel = MakeOne();
  for (const auto deadline : {In(milliseconds(-1)), std::chrono::system_clock::time_point::min()}) {
    Collector collector;
    const auto call = channel->NewCall(deadline);
    call->Start("/a.B/C", "", collector);
    EXPECT_EQ(collector.Await().code(), StatusCode::kDeadlineExceeded);
  }
  EXPECT_EQ(server->accepted(), 0);
  Collector collector;
  const auto call = channel->NewCall(std::chrono::system_clock::time_point::max());
  call->Start("/a.B/C", "", collector);
  EXPECT_OK(collector.Await());
  channel = nullptr;
}

TEST_F(ChannelLife, AHandlerThatThrowsEndsItsCall) {
  const auto server = Answering(Counting(3));
  auto channel = MakeOne();
  Collector collector;
  collector.on_message = [] { throw std::runtime_error("no"); };
  const auto call = channel->NewCall({});
  call->Start("/a.B/C", "", collector);
  EXPECT_FALSE(collector.Await().ok());
  channel = nullptr;
}

// In OnEnd(), with a read pending that comes too late.
TEST_F(ChannelLife, ACallMayBeDestroyedInItsEnd) {
  const auto server = Answering(Counting(3));
  for (int i = 0; i < 200; ++i) {
    auto channel = MakeOne();
    Collector collector;
    std::unique_ptr<ClientCall> call = channel->NewCall({});
    collector.on_message = [&] {
      call->ReadOn();
      if (i % 4 == 1) call->Cancel();
    };
    collector.on_end = [&] {
      call->ReadOn();
      call->Cancel();
      call = nullptr;
    };
    call->Start("/a.B/C", "", collector);
    if (i % 4 == 2) channel = nullptr;
    static_cast<void>(collector.Await());
    channel = nullptr;
  }
}

// Other threads cancel, read and destroy the channel at any time. OK must only come with every
// message.
TEST_F(ChannelLife, RacesOfEverything) {
  constexpr int kRounds = 300;
  constexpr int kMessages = 12;
  const auto server = Answering(Counting(kMessages));
  test::SeededRandom random(4);
  int ok = 0;
  for (int round = 0; round < kRounds; ++round) {
    auto channel = MakeOne();
    Collector collector(1 + random() % 4);
    const uint64_t kind = random() % 4;
    const microseconds wait(random() % 600);
    std::unique_ptr<ClientCall> call = channel->NewCall(
        kind == 3 ? Deadline(std::chrono::system_clock::now() + wait) : Deadline());
    std::atomic<bool> ended = false;
    call->Start("/a.B/C", "request", collector);
    if (random() % 2 == 0) channel = nullptr;
    std::thread reader([&] {
      while (!ended) {
        call->ReadOn();
        std::this_thread::sleep_for(microseconds(20));
      }
    });
    if (kind == 1) {
      std::this_thread::sleep_for(wait);
      call->Cancel();
    }
    const absl::Status status = collector.Await();
    ended = true;
    reader.join();
    call = nullptr;
    channel = nullptr;
    const std::vector<std::string> messages = collector.messages();
    for (size_t i = 0; i < messages.size(); ++i) ASSERT_EQ(messages[i], std::to_string(i));
    if (status.ok()) {
      ++ok;
      ASSERT_EQ(messages.size(), size_t{kMessages});
    } else {
      ASSERT_THAT(status.code(),
                  testing::AnyOf(StatusCode::kCancelled, StatusCode::kDeadlineExceeded))
          << status;
    }
  }
  EXPECT_GT(ok, kRounds / 4);
}

// Many threads in Connect() and calls at once, while the server comes and goes.
TEST_F(ChannelLife, ThreadsShareAChannelWhileTheServerComesAndGoes) {
  auto channel = MakeOne({.reconnect_at_once = true});
  std::atomic<bool> stop = false;
  std::atomic<int> ok = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      while (!stop) {
        if (i == 0) {
          static_cast<void>(channel->Connect(In(milliseconds(5))));
          continue;
        }
        Collector collector;
        const auto call = channel->NewCall(In(milliseconds(200)));
        call->Start("/a.B/C", "", collector);
        const absl::Status status = collector.Await();
        if (status.ok()) {
          EXPECT_EQ(collector.messages().size(), 2U);
          ++ok;
        }
      }
    });
  }
  for (int i = 0; i < 30; ++i) {
    const RawServer server(dir / "s", [](RawConnection& connection) {
      if (!connection.AwaitRequest()) return;
      connection.Send(test::SettingsFrame() + Counting(2));
    });
    std::this_thread::sleep_for(milliseconds(10));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(ok, 0);
}

TEST_F(ChannelLife, HostsAreLookedUpAndEveryAddressIsTried) {
  const auto channel =
      test::ValueOf(MakeChannel(test::ValueOf(net::ParseAddress("localhost:1")), {}, {}));
  Collector collector;
  const auto call = channel->NewCall({});
  call->Start("/a.B/C", "", collector);
  EXPECT_THAT(std::string(collector.Await().message()), HasSubstr("Connection refused"));
  const auto unknown =
      test::ValueOf(MakeChannel(test::ValueOf(net::ParseAddress("no..name:1")), {}, {}));
  Collector other;
  const auto nowhere = unknown->NewCall({});
  nowhere->Start("/a.B/C", "", other);
  EXPECT_EQ(other.Await().code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(other.Await().message()), HasSubstr("no..name:1"));
  // Destroyed before there is an answer.
  for (int i = 0; i < 50; ++i) {
    const auto gone =
        test::ValueOf(MakeChannel(test::ValueOf(net::ParseAddress("localhost:1")), {}, {}));
    Collector late;
    const auto cancelled = gone->NewCall({});
    cancelled->Start("/a.B/C", "", late);
    cancelled->Cancel();
    EXPECT_FALSE(late.Await().ok());
  }
}

}  // namespace channel_life_test
}  // namespace cbt::rpc::http2

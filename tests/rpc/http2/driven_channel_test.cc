// Channels whose events run in the threads that wait for them.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "rpc/http2/channel.h"
#include "tests/rpc/http2/collector.h"
#include "tests/rpc/http2/raw_server.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::rpc::http2 {
namespace driven_channel_test {

using absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using test::Collector;
using test::DataFrame;
using test::HeadersFrame;
using test::MessageBytes;
using test::RawConnection;
using test::RawServer;

const std::string kHeaders =
    test::SettingsFrame() +
    HeadersFrame({{":status", "200"}, {"content-type", "application/grpc"}});

class DrivenChannel : public testing::Test {
 protected:
  std::shared_ptr<Channel> MakeOne() const {
    return test::ValueOf(MakeChannel(test::ValueOf(net::ParseAddress("unix:" + (dir / "s"))), {},
                                     {.events_in_waiting_threads = true}));
  }
  static bool Wait(Channel& channel, absl::FunctionRef<bool()> done) {
    EXPECT_TRUE(channel.HandleEvents(done, steady_clock::now() + seconds(20)));
    return done();
  }

  const test::TempDir dir;
};

TEST_F(DrivenChannel, EventsComeInTheThreadThatWaits) {
  const RawServer server(dir / "s", [](RawConnection& connection) {
    if (!connection.AwaitRequest()) return;
    connection.Send(kHeaders);
    for (int i = 0; i < 100; ++i) {
      connection.Send(DataFrame(MessageBytes(std::string(1000, 'a'))));
      std::this_thread::sleep_for(milliseconds(1));
    }
    connection.Send(HeadersFrame({{"grpc-status", "0"}}, true));
    connection.AwaitClose();
  });
  const auto channel = MakeOne();
  Collector collector;
  int elsewhere = 0;
  const auto note = [&, here = std::this_thread::get_id()] {
    if (std::this_thread::get_id() != here) ++elsewhere;
  };
  collector.on_message = note;
  collector.on_end = note;
  const auto call = channel->NewCall({});
  call->Start("/a.B/C", "", collector);
  EXPECT_TRUE(Wait(*channel, [&] { return collector.ended(); }));
  EXPECT_OK(collector.Await());
  EXPECT_EQ(collector.messages().size(), 100U);
  EXPECT_EQ(elsewhere, 0);
}

TEST_F(DrivenChannel, ItReturnsInTime) {
  const auto channel = MakeOne();
  const auto begin = steady_clock::now();
  EXPECT_TRUE(channel->HandleEvents([] { return false; }, begin + milliseconds(20)));
  EXPECT_GE(steady_clock::now(), begin + milliseconds(20));
  // Also if the condition holds already, whatever the time.
  EXPECT_TRUE(channel->HandleEvents([] { return true; }, steady_clock::time_point::max()));
}

TEST_F(DrivenChannel, ConnectWaitsHere) {
  const RawServer server(dir / "s", [](RawConnection& connection) {
    connection.Send(test::SettingsFrame());
    connection.AwaitClose();
  });
  const auto channel = MakeOne();
  EXPECT_OK(channel->Connect(std::chrono::system_clock::now() + seconds(20)));
  EXPECT_EQ(server.accepted(), 1);
}

TEST_F(DrivenChannel, ACallIsCancelledFromAnotherThreadWhileOneWaits) {
  const RawServer server(dir / "s", [](RawConnection& connection) { connection.AwaitClose(); });
  const auto channel = MakeOne();
  Collector collector;
  const auto call = channel->NewCall({});
  call->Start("/a.B/C", "", collector);
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(20));
    call->Cancel();
  });
  EXPECT_TRUE(Wait(*channel, [&] { return collector.ended(); }));
  EXPECT_EQ(collector.Await().code(), StatusCode::kCancelled);
  other.join();
}

TEST_F(DrivenChannel, WithoutAWaiterCallsStartAreDeliveredAndEnd) {
  const RawServer server(dir / "s", [](RawConnection& connection) {
    if (!connection.AwaitRequest()) return;
    connection.Send(kHeaders + DataFrame(MessageBytes("a")));
    connection.AwaitClose();
  });
  const auto channel = MakeOne();
  Collector collector;
  const auto call = channel->NewCall({});
  call->Start("/a.B/C", "", collector);
  EXPECT_TRUE(collector.AwaitMessages(1));
  call->Cancel();
  EXPECT_EQ(collector.Await().code(), StatusCode::kCancelled);
}

// The reference driver of CSI ends with OK what its deadline has cut. Its OK is read together with
// the passing of the deadline if the loop comes late.
TEST_F(DrivenChannel, FAAnOkThatComesAfterTheDeadlineIsNoEnd) {
  const RawServer server(dir / "s", [](RawConnection& connection) {
    if (!connection.AwaitRequest()) return;
    connection.Send(kHeaders + DataFrame(MessageBytes("a")));
    std::this_thread::sleep_for(milliseconds(60));
    connection.Send(HeadersFrame({{"grpc-status", "0"}}, true));
    connection.AwaitClose();
  });
  const auto channel = MakeOne();
  Collector collector;
  const auto call = channel->NewCall(std::chrono::system_clock::now() + milliseconds(50));
  call->Start("/a.B/C", "", collector);
  // No thread waits for a while.
  std::this_thread::sleep_for(milliseconds(20));
  channel->HandleEvents([&] { return !collector.messages().empty(); },
                        steady_clock::now() + milliseconds(20));
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(collector.Await().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(DrivenChannel, WithoutAWaiterDeadlinesHold) {
  const RawServer server(dir / "s", [](RawConnection& connection) { connection.AwaitClose(); });
  const auto channel = MakeOne();
  Collector collector;
  const auto call = channel->NewCall(std::chrono::system_clock::now() + milliseconds(50));
  call->Start("/a.B/C", "", collector);
  EXPECT_EQ(collector.Await().code(), StatusCode::kDeadlineExceeded);
}

// Otherwise a server that pings would disconnect a consumer that works on a message for long.
TEST_F(DrivenChannel, WithoutAWaiterPingsAreAnswered) {
  constexpr int kPing = 6;
  std::atomic<bool> answered = false;
  const RawServer server(dir / "s", [&](RawConnection& connection) {
    if (!connection.AwaitRequest()) return;
    connection.Send(kHeaders + DataFrame(MessageBytes("a")));
    connection.Send(test::Frame(kPing, 0, 0, "12345678"));
    while (const auto frame = connection.Next()) {
      if (frame->type == kPing && frame->flags == 1) break;
    }
    answered = true;
    answered.notify_all();
    connection.AwaitClose();
  });
  const auto channel = MakeOne();
  Collector collector;
  const auto call = channel->NewCall({});
  call->Start("/a.B/C", "", collector);
  answered.wait(false);
  call->Cancel();
  EXPECT_TRUE(Wait(*channel, [&] { return collector.ended(); }));
}

TEST_F(DrivenChannel, TheConnectionIsClosedWithTheChannel) {
  std::atomic<int> closed = 0;
  const RawServer server(dir / "s", [&](RawConnection& connection) {
    if (!connection.AwaitRequest()) return;
    connection.Send(kHeaders + HeadersFrame({{"grpc-status", "0"}}, true));
    connection.AwaitClose();
    ++closed;
    closed.notify_all();
  });
  // Also if a call is destroyed later.
  for (const bool call_is_last : {false, true}) {
    const int before = closed;
    auto channel = MakeOne();
    Collector collector;
    auto call = channel->NewCall({});
    call->Start("/a.B/C", "", collector);
    EXPECT_TRUE(Wait(*channel, [&] { return collector.ended(); }));
    if (!call_is_last) call.reset();
    channel.reset();
    call.reset();
    closed.wait(before);
  }
}

TEST_F(DrivenChannel, NothingIsNeededOfWhatIsNotUsed) {
  for (int i = 0; i < 100; ++i) {
    const auto channel = MakeOne();
    if (i % 3 == 0) continue;
    const auto call = channel->NewCall({});
    if (i % 3 == 1) call->Cancel();
    call->ReadOn();
  }
}

// One thread handles the events of both calls; the other must not wait for that thread's call.
TEST_F(DrivenChannel, ThreadsMayWaitTogether) {
  const RawServer server(dir / "s", [](RawConnection& connection) {
    int requests = 0;
    while (requests < 2) {
      const auto frame = connection.Next();
      if (!frame.has_value()) return;
      if (frame->type <= 1 && (frame->flags & 1) != 0) ++requests;
    }
    // The second call's answer.
    std::string frame = HeadersFrame(
        {{":status", "200"}, {"content-type", "application/grpc"}, {"grpc-status", "0"}}, true);
    frame[8] = '\3';
    connection.Send(test::SettingsFrame() + frame);
    connection.AwaitClose();
  });
  const auto channel = MakeOne();
  Collector endless;
  const auto endless_call = channel->NewCall({});
  endless_call->Start("/a.B/C", "", endless);
  Collector collector;
  const auto call = channel->NewCall({});
  call->Start("/a.B/C", "", collector);
  std::thread other([&] { EXPECT_TRUE(Wait(*channel, [&] { return endless.ended(); })); });
  EXPECT_TRUE(Wait(*channel, [&] { return collector.ended(); }));
  EXPECT_OK(collector.Await());
  endless_call->Cancel();
  other.join();
}

}  // namespace driven_channel_test
}  // namespace cbt::rpc::http2

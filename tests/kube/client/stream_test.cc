// Answers without an end of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/kube/client.h"
#include "cbt/kube/status.h"
#include "tests/kube/support/scripted_server.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::kube {
namespace stream_test {

using std::chrono::milliseconds;
using test::ScriptedAnswer;
using test::ScriptedRequest;
using test::ScriptedServer;
using test::StatusJson;
using test::ValueOf;
using testing::ElementsAre;
using testing::IsEmpty;

// A stream and what came of it.
class Stream {
 public:
  Call Start(Client& client, const StreamCallOptions& options = {}, int fail_at = -1) {
    return client.StreamAsync(
        {.path = "/stream"}, options, [this] { opened_ = true; },
        [this, fail_at](std::string_view line) {
          const std::lock_guard lock(mutex_);
          lines_.emplace_back(line);
          changed_.notify_all();
          return static_cast<int>(lines_.size()) == fail_at ? absl::DataLossError("no")
                                                            : absl::OkStatus();
        },
        [this](absl::Status status) { end_.set_value(std::move(status)); });
  }
  absl::Status Wait() { return end_.get_future().get(); }
  bool WaitForLines(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30),
                             [&] { return lines_.size() >= count; });
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  bool opened() const { return opened_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
  std::atomic<bool> opened_{false};
  std::promise<absl::Status> end_;
};

ScriptedAnswer Lines(const std::string& text) {
  return {.body = text, .framing = ScriptedAnswer::Framing::kChunked};
}

TEST(StreamTest, Lines) {
  const std::string large(200'000, 'x');
  const ScriptedServer server(
      [&](const ScriptedRequest&) { return Lines("one\ntwo\n\n" + large + "\n"); });
  const auto client = ValueOf(Client::Create(server.config()));
  Stream stream;
  stream.Start(*client);
  EXPECT_OK(stream.Wait());
  EXPECT_TRUE(stream.opened());
  EXPECT_THAT(stream.lines(), ElementsAre("one", "two", large));
}

TEST(StreamTest, EveryCutIsAnError) {
  const ScriptedAnswer whole = Lines("one\ntwo\nthree\n");
  const size_t size = test::WireBytes(whole).size();
  size_t cut = 0;
  const ScriptedServer server([&](const ScriptedRequest&) {
    ScriptedAnswer answer = whole;
    answer.cut_after = cut;
    answer.end = ScriptedAnswer::End::kClose;
    return answer;
  });
  ClientOptions options;
  options.qps = 0;
  const auto client = ValueOf(Client::Create(server.config(), options));
  // The last chunk is complete without the empty line that follows it.
  for (cut = 0; cut < size - 2; ++cut) {
    Stream stream;
    stream.Start(*client);
    ASSERT_EQ(stream.Wait().code(), absl::StatusCode::kUnavailable) << cut;
  }
  EXPECT_EQ(server.requests().size(), size - 2) << "a stream is not repeated";
}

TEST(StreamTest, EndsInTheMiddleOfALine) {
  const ScriptedServer server([&](const ScriptedRequest&) { return Lines("one\ntwo"); });
  const auto client = ValueOf(Client::Create(server.config()));
  Stream stream;
  stream.Start(*client);
  EXPECT_EQ(stream.Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(stream.lines(), ElementsAre("one"));
}

TEST(StreamTest, ErrorsOfTheServer) {
  const ScriptedServer server([&](const ScriptedRequest&) -> ScriptedAnswer {
    return {.code = 410, .body = StatusJson(410, "Expired", "too old")};
  });
  const auto client = ValueOf(Client::Create(server.config()));
  Stream stream;
  stream.Start(*client);
  const absl::Status status = stream.Wait();
  EXPECT_TRUE(IsExpired(status));
  EXPECT_FALSE(stream.opened());
  EXPECT_THAT(stream.lines(), IsEmpty());
}

TEST(StreamTest, AnErrorOfTheReaderEndsIt) {
  const ScriptedServer server([&](const ScriptedRequest&) { return Lines("1\n2\n3\n"); });
  const auto client = ValueOf(Client::Create(server.config()));
  Stream stream;
  stream.Start(*client, {}, 2);
  EXPECT_EQ(stream.Wait().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(stream.lines(), ElementsAre("1", "2"));
}

TEST(StreamTest, LongLines) {
  const ScriptedServer server([&](const ScriptedRequest&) { return Lines("1\n12345\n"); });
  const auto client = ValueOf(Client::Create(server.config()));
  Stream stream;
  stream.Start(*client, {.max_line = 4});
  EXPECT_EQ(stream.Wait().code(), absl::StatusCode::kResourceExhausted);
}

TEST(StreamTest, Times) {
  const ScriptedServer server([&](const ScriptedRequest& request) -> ScriptedAnswer {
    if (request.number == 1) return {.raw = "", .end = ScriptedAnswer::End::kHang};
    ScriptedAnswer answer = Lines("1\n2\n");
    answer.cut_after = test::WireBytes(answer).size() - 5;
    answer.end = ScriptedAnswer::End::kHang;
    return answer;
  });
  const auto client = ValueOf(Client::Create(server.config()));
  Stream never;
  never.Start(*client, {.open_timeout = milliseconds(100)});
  EXPECT_EQ(never.Wait().code(), absl::StatusCode::kDeadlineExceeded);
  Stream idle;
  idle.Start(*client, {.open_timeout = milliseconds(20'000), .idle_timeout = milliseconds(100)});
  EXPECT_EQ(idle.Wait().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(idle.lines(), ElementsAre("1", "2"));
  Stream whole;
  whole.Start(*client, {.timeout = milliseconds(200)});
  EXPECT_EQ(whole.Wait().code(), absl::StatusCode::kDeadlineExceeded);
  Stream cancelled;
  const Call call = cancelled.Start(*client);
  ASSERT_TRUE(cancelled.WaitForLines(2)) << "the time for the head is over, and it goes on";
  call.Cancel();
  EXPECT_EQ(cancelled.Wait().code(), absl::StatusCode::kCancelled);
}

TEST(StreamTest, TakesNoPlaceOfOtherCalls) {
  const ScriptedServer server([&](const ScriptedRequest& request) -> ScriptedAnswer {
    if (request.target != "/stream") return {.body = "{}"};
    ScriptedAnswer answer = Lines("1\n");
    answer.cut_after = test::WireBytes(answer).size() - 5;
    answer.end = ScriptedAnswer::End::kHang;
    return answer;
  });
  ClientOptions options;
  options.max_in_flight = 1;
  auto client = ValueOf(Client::Create(server.config(), options));
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 5; ++i) {
    streams.push_back(std::make_unique<Stream>());
    streams.back()->Start(*client);
    ASSERT_TRUE(streams.back()->WaitForLines(1));
  }
  EXPECT_OK(client->Send({.path = "/"}));
  client.reset();
  for (const auto& stream : streams) {
    EXPECT_EQ(stream->Wait().code(), absl::StatusCode::kCancelled);
  }
}

TEST(StreamTest, OneMoreAttemptAfter401) {
  const test::TempDir dir;
  dir.Write("token", "first");
  const ScriptedServer server([&](const ScriptedRequest& request) -> ScriptedAnswer {
    if (request.number == 1) {
      return {.code = 401, .body = StatusJson(401, "Unauthorized", "Unauthorized")};
    }
    return Lines("1\n");
  });
  Config config = server.config();
  config.token_file = dir / "token";
  const auto client = ValueOf(Client::Create(std::move(config)));
  Stream stream;
  stream.Start(*client);
  EXPECT_OK(stream.Wait());
  EXPECT_THAT(stream.lines(), ElementsAre("1"));
}

}  // namespace stream_test
}  // namespace cbt::kube

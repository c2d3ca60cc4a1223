// Calls from their start to their end: deadlines, cancellation, repetitions, limits, destruction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/kube/client.h"
#include "cbt/kube/status.h"
#include "cbt/kube/typed_objects.h"
#include "tests/kube/support/scripted_server.h"
#include "tests/support/status.h"

namespace cbt::kube {
namespace client_life_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;
using test::ScriptedAnswer;
using test::ScriptedRequest;
using test::ScriptedServer;
using test::StatusJson;
using test::ValueOf;
using testing::HasSubstr;

// Far more than anything here takes.
constexpr seconds kWaitLimit{60};

std::unique_ptr<Client> MakeClient(const ScriptedServer& server, ClientOptions options = {}) {
  return ValueOf(Client::Create(server.config(), std::move(options)));
}

ScriptedAnswer Hang() { return {.raw = "", .end = ScriptedAnswer::End::kHang}; }

// The result of one call, and how often it came.
class Result {
 public:
  ResultCallback<Response> Taker() {
    return [state = state_](absl::StatusOr<Response> result) {
      if (++state->times == 1) state->result.set_value(result.status());
    };
  }
  absl::Status Wait() {
    std::future<absl::Status> future = state_->result.get_future();
    if (future.wait_for(kWaitLimit) != std::future_status::ready) {
      return absl::UnknownError("no result came");
    }
    return future.get();
  }
  bool has_come() const { return state_->times != 0; }
  int times() const { return state_->times; }

 private:
  struct State {
    std::promise<absl::Status> result;
    std::atomic<int> times{0};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

CallOptions Within(milliseconds timeout) { return {.timeout = timeout}; }

TEST(ClientLifeTest, DeadlineWhileTheServerIsSilent) {
  const ScriptedServer server([](const ScriptedRequest&) { return Hang(); });
  const auto client = MakeClient(server);
  const Clock::time_point begin = Clock::now();
  const absl::Status status = client->Send({.path = "/"}, Within(milliseconds(200))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(Clock::now() - begin, milliseconds(200));
  EXPECT_LT(Clock::now() - begin, kWaitLimit);
}

TEST(ClientLifeTest, DeadlineInTheMiddleOfTheBody) {
  const ScriptedServer server([](const ScriptedRequest&) -> ScriptedAnswer {
    return {.body = "{\"a\":1}", .cut_after = 60, .end = ScriptedAnswer::End::kHang};
  });
  EXPECT_EQ(MakeClient(server)->Send({.path = "/"}, Within(milliseconds(200))).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(ClientLifeTest, DeadlineWhileAnAddressDoesNotAnswer) {
  // Listens and accepts nothing.
  const ScriptedServer unused([](const ScriptedRequest&) { return Hang(); });
  Config config = unused.config();
  config.server = "https://127.0.0.1:1";  // refuses
  const auto client = ValueOf(Client::Create(std::move(config)));
  const absl::Status status = client->Send({.path = "/"}, Within(milliseconds(400))).status();
  // The last wait is not begun, or the deadline comes first.
  EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) << status;
  EXPECT_GE(client->counters().retries, 1U);
}

TEST(ClientLifeTest, CancelFromEveryState) {
  const ScriptedServer server([](const ScriptedRequest& request) -> ScriptedAnswer {
    if (request.target == "/busy") {
      return {.code = 429, .headers = {"Retry-After: 20"}, .body = "{}"};
    }
    if (request.target == "/half") {
      return {.body = "{\"a\":1}", .cut_after = 60, .end = ScriptedAnswer::End::kHang};
    }
    return Hang();
  });
  ClientOptions options;
  options.max_in_flight = 3;
  const auto client = MakeClient(server, options);
  Result silent, half, busy, waiting, fresh;
  const Call one = client->SendAsync({.path = "/silent"}, {}, silent.Taker());
  const Call two = client->SendAsync({.path = "/half"}, {}, half.Taker());
  const Call three = client->SendAsync({.path = "/busy"}, {}, busy.Taker());
  ASSERT_TRUE(server.WaitForRequests(3));
  client->SendAsync({.path = "/silent"}, {}, Result().Taker());
  const Call four = client->SendAsync({.path = "/waiting"}, {}, waiting.Taker());
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(silent.has_come() || half.has_come() || busy.has_come() || waiting.has_come());
  for (const Call& call : {one, two, three, four}) call.Cancel();
  client->SendAsync({.path = "/fresh"}, {}, fresh.Taker()).Cancel();
  for (Result* result : {&silent, &half, &busy, &waiting, &fresh}) {
    EXPECT_EQ(result->Wait().code(), absl::StatusCode::kCancelled);
  }
  one.Cancel();
  Call().Cancel();
  for (Result* result : {&silent, &half, &busy, &waiting, &fresh}) EXPECT_EQ(result->times(), 1);
}

TEST(ClientLifeTest, CancelAfterTheEndDoesNothing) {
  const ScriptedServer server(
      [](const ScriptedRequest&) -> ScriptedAnswer { return {.body = "{}"}; });
  Call call;
  {
    const auto client = MakeClient(server);
    Result result;
    call = client->SendAsync({.path = "/"}, {}, result.Taker());
    EXPECT_OK(result.Wait());
    call.Cancel();
    EXPECT_OK(client->Send({.path = "/"}));
    EXPECT_EQ(result.times(), 1);
  }
  call.Cancel();
}

TEST(ClientLifeTest, DestructionEndsEveryCallOnce) {
  const ScriptedServer server([](const ScriptedRequest&) { return Hang(); });
  ClientOptions options;
  options.max_in_flight = 4;
  auto client = MakeClient(server, options);
  std::vector<Result> results(20);
  Result from_done;
  std::atomic<bool> started{false};
  for (Result& result : results) client->SendAsync({.path = "/"}, {}, result.Taker());
  Client* const raw = client.get();
  raw->SendAsync({.path = "/"}, {}, [&, raw](const absl::StatusOr<Response>&) {
    if (!started.exchange(true)) raw->SendAsync({.path = "/"}, {}, from_done.Taker());
  });
  ASSERT_TRUE(server.WaitForRequests(4));
  client.reset();
  for (Result& result : results) {
    EXPECT_EQ(result.times(), 1);
    EXPECT_EQ(result.Wait().code(), absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(from_done.Wait().code(), absl::StatusCode::kCancelled);
}

TEST(ClientLifeTest, WaitingInTheClientsThreadIsRefused) {
  const ScriptedServer server(
      [](const ScriptedRequest&) -> ScriptedAnswer { return {.body = "{}"}; });
  const auto client = MakeClient(server);
  std::promise<absl::Status> inner;
  client->SendAsync({.path = "/"}, {}, [&](const absl::StatusOr<Response>&) {
    inner.set_value(client->Send({.path = "/"}).status());
    throw std::runtime_error("is dropped");
  });
  EXPECT_EQ(inner.get_future().get().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_OK(client->Send({.path = "/"}));
}

TEST(ClientLifeTest, CallsFromManyThreads) {
  const ScriptedServer server([](const ScriptedRequest& request) -> ScriptedAnswer {
    return {.body = absl::StrCat("{\"path\":\"", request.target, "\"}")};
  });
  ClientOptions options;
  options.qps = 0;
  const auto client = MakeClient(server, options);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < 20; ++j) {
        const std::string path = absl::StrCat("/", i, "/", j);
        const absl::StatusOr<Response> response = client->Send({.path = path});
        if (response.ok() && response->body == "{\"path\":\"" + path + "\"}") ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 160);
}

// --- Repetitions.

struct Script {
  std::vector<ScriptedAnswer> answers;  // the last one for all that follow
  ScriptedServer::Handler Handler() const {
    return [answers = answers](const ScriptedRequest& request) {
      return answers[std::min(static_cast<size_t>(request.number), answers.size()) - 1];
    };
  }
};

ScriptedAnswer Code(int code, std::vector<std::string> headers = {}) {
  return {.code = code, .headers = std::move(headers), .body = StatusJson(code, "Reason", "text")};
}

TEST(ClientLifeTest, RepeatsWhatTheServerRefused) {
  for (const std::string method : {"GET", "POST"}) {
    const ScriptedServer server(Script{
        {Code(429, {"Retry-After: 1"}), Code(503, {"Retry-After: 0"}), Code(429), {.body = "{}"}}}
                                    .Handler());
    const auto client = MakeClient(server);
    const Clock::time_point begin = Clock::now();
    EXPECT_OK(client->Send({.method = method, .path = "/"}));
    EXPECT_GE(Clock::now() - begin, seconds(1)) << "it waits as long as it is asked to";
    EXPECT_EQ(server.requests().size(), 4U);
    EXPECT_EQ(client->counters().retries, 3U);
  }
}

TEST(ClientLifeTest, RepetitionsAreBounded) {
  const ScriptedServer server(Script{{Code(429, {"Retry-After: 0"})}}.Handler());
  ClientOptions options;
  options.max_retries = 4;
  const absl::Status status = MakeClient(server, options)->Send({.path = "/"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryAfterOf(status), milliseconds(0));
  EXPECT_EQ(server.requests().size(), 5U);
}

TEST(ClientLifeTest, AWaitBeyondTheDeadlineIsNotBegun) {
  const ScriptedServer server(Script{{Code(429, {"Retry-After: 3600"})}}.Handler());
  const Clock::time_point begin = Clock::now();
  const absl::Status status = MakeClient(server)->Send({.path = "/"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryAfterOf(status), seconds(3600));
  EXPECT_LT(Clock::now() - begin, seconds(20));
}

TEST(ClientLifeTest, RetryAfterOfTheStatusCounts) {
  const ScriptedServer server(Script{
      {{.code = 500, .body = R"({"kind":"Status","code":500,"details":{"retryAfterSeconds":1}})"},
       {.body = "{}"}}}.Handler());
  EXPECT_OK(MakeClient(server)->Send({.method = "POST", .path = "/"}));
}

TEST(ClientLifeTest, AServersFaultIsRepeatedOnlyIfTwiceIsOnce) {
  const ScriptedServer server(Script{{Code(500)}}.Handler());
  const auto client = MakeClient(server);
  EXPECT_EQ(client->Send({.method = "POST", .path = "/"}).status().code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(server.requests().size(), 1U);
  EXPECT_EQ(client->Send({.path = "/"}).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(server.requests().size(), 5U) << "three repetitions";
  EXPECT_EQ(client->Send({.method = "POST", .path = "/", .repeatable = true}).status().code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(server.requests().size(), 9U);
}

TEST(ClientLifeTest, OtherErrorsAreNotRepeated) {
  for (const int code : {400, 401, 403, 404, 409, 410, 422, 501}) {
    const ScriptedServer server(Script{{Code(code, {"X: y"})}}.Handler());
    EXPECT_EQ(HttpCodeOf(MakeClient(server)->Send({.path = "/"}).status()), code);
    EXPECT_EQ(server.requests().size(), 1U) << code;
  }
}

// What may have arrived is not sent twice, whatever the connection does; also not by libcurl, which
// does so by itself on a connection that it used before.
TEST(ClientLifeTest, AConnectionThatBreaksAfterTheRequest) {
  for (const bool used_before : {false, true}) {
    const ScriptedServer server([](const ScriptedRequest& request) -> ScriptedAnswer {
      if (request.target == "/first") return {.body = "{}"};
      return {.raw = "", .end = ScriptedAnswer::End::kClose};
    });
    const auto client = MakeClient(server);
    if (used_before) {
      ASSERT_OK(client->Send({.path = "/first"}));
    }
    const size_t before = server.requests().size();
    EXPECT_EQ(client->Send({.method = "POST", .path = "/", .body = "{}"}).status().code(),
              absl::StatusCode::kUnavailable);
    EXPECT_EQ(server.requests().size(), before + 1) << used_before;
    EXPECT_EQ(client->Delete(kConfigMaps, "ns", "a").code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(server.requests().size(), before + 2) << used_before;
    EXPECT_EQ(client->Send({.path = "/"}).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_GE(server.requests().size(), before + 2 + 4) << "reads are repeated";
  }
}

TEST(ClientLifeTest, AnIdleConnectionThatWasClosedIsNoFailure) {
  ScriptedServer server([](const ScriptedRequest&) -> ScriptedAnswer { return {.body = "{}"}; });
  const auto client = MakeClient(server);
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK(client->Send({.method = "POST", .path = "/", .body = "{}"})) << i;
    server.Disconnect();
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(server.requests().size(), 5U);
}

TEST(ClientLifeTest, ReviewsAreRepeated) {
  const ScriptedServer server(
      Script{{{.raw = "", .end = ScriptedAnswer::End::kClose},
              {.code = 201,
               .body = R"({"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1",)"
                       R"("status":{"authenticated":true,"audiences":["a"]}})"}}}
          .Handler());
  TokenReview review;
  review.token = Secret("t");
  review.audiences = {"a"};
  EXPECT_TRUE(ValueOf(MakeClient(server)->Create(review)).AuthenticatedFor("a"));
  EXPECT_EQ(server.requests().size(), 2U);
  EXPECT_EQ(server.requests()[1].body, server.requests()[0].body);
}

// --- Limits.

TEST(ClientLifeTest, RequestsPerSecond) {
  const ScriptedServer server(
      [](const ScriptedRequest&) -> ScriptedAnswer { return {.body = "{}"}; });
  ClientOptions options;
  options.qps = 20;
  options.burst = 2;
  const auto client = MakeClient(server, options);
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 12; ++i) ASSERT_OK(client->Send({.path = "/"}));
  EXPECT_GE(Clock::now() - begin, milliseconds(490));
  // The wait is part of the time that a call has.
  options.qps = 0.01;
  options.burst = 1;
  const auto slow = MakeClient(server, options);
  EXPECT_OK(slow->Send({.path = "/"}));
  EXPECT_EQ(slow->Send({.path = "/"}, Within(milliseconds(100))).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(ClientLifeTest, CallsThatWaitAreBounded) {
  const ScriptedServer server([](const ScriptedRequest&) { return Hang(); });
  ClientOptions options;
  options.max_in_flight = 2;
  options.max_waiting = 3;
  const auto client = MakeClient(server, options);
  std::vector<Result> results(20);
  for (Result& result : results) client->SendAsync({.path = "/"}, {}, result.Taker());
  EXPECT_EQ(results.back().Wait().code(), absl::StatusCode::kResourceExhausted);
  int refused = 0;
  for (const Result& result : results) refused += result.has_come() ? 1 : 0;
  EXPECT_GE(refused, 20 - 2 * (2 + 3));
  EXPECT_LE(refused, 20 - (2 + 3));
  EXPECT_LE(server.requests().size(), 2U);
}

TEST(ClientLifeTest, BodiesAreBounded) {
  const ScriptedServer server([](const ScriptedRequest& request) -> ScriptedAnswer {
    ScriptedAnswer answer;
    answer.body = std::string(request.target == "/long" ? 1001 : 1000, ' ');
    answer.framing = ScriptedAnswer::Framing::kChunked;
    return answer;
  });
  ClientOptions options;
  options.max_body = 1000;
  const auto client = MakeClient(server, options);
  EXPECT_EQ(ValueOf(client->Send({.path = "/fits"})).body.size(), 1000U);
  const absl::Status status = client->Send({.path = "/long"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("longer than 1000 bytes"));
}

TEST(ClientLifeTest, LargeBodiesGoBothWays) {
  const ScriptedServer server(
      [](const ScriptedRequest& request) -> ScriptedAnswer { return {.body = request.body}; });
  const std::string body = "{\"a\":\"" + std::string(3 << 20, 'x') + "\"}";
  EXPECT_EQ(ValueOf(MakeClient(server)->Send({.method = "PUT", .path = "/", .body = body})).body,
            body);
}

}  // namespace client_life_test
}  // namespace cbt::kube

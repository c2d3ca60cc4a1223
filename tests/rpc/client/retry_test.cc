// How long clients wait for an unreachable server, before the first message and in mid-stream.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "cbt/rpc/client.h"
#include "cbt/rpc/server.h"
#include "rpc/client/connect.h"
#include "tests/reference/volume.h"
#include "tests/rpc/support/fake_server.h"
#include "tests/rpc/support/list_all.h"
#include "tests/rpc/support/providers.h"
#include "tests/support/cursors.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace retry_test {

using absl::StatusCode;
using reference::Ranges;
using rpc::RetryWindow;
using std::chrono::milliseconds;
using test::CursorOver;
using test::Extents;
using test::FakeServer;
using test::FunctionProvider;
using test::ListAll;
using test::Script;
using test::TempDir;
using test::ValueOf;
using test::Variable;
using testing::HasSubstr;

const grpc::Status kAway(grpc::StatusCode::UNAVAILABLE, "connection lost");

rpc::ListRequest RequestTo(const std::string& address) {
  rpc::ListRequest request;
  request.address = address;
  request.snapshot_id = "s";
  request.timeout = std::chrono::seconds(60);
  return request;
}

TEST(RetryWindow, WaitsDoubleToFiveSecondsAndFillTheWindow) {
  for (int i = 0; i < 100; ++i) {
    constexpr milliseconds kLength = std::chrono::minutes(5);
    RetryWindow window(kLength);
    RetryWindow::Clock::time_point now;
    milliseconds passed{0};
    milliseconds most{100};
    for (;;) {
      const std::optional<milliseconds> wait = window.NextWait(now);
      if (!wait.has_value()) break;
      EXPECT_LE(*wait, most);
      if (passed + *wait < kLength) {
        EXPECT_GE(*wait, most / 2);
      }
      EXPECT_GT(*wait, milliseconds(0));
      passed += *wait;
      now += *wait;
      most = std::min(2 * most, milliseconds(5000));
    }
    EXPECT_EQ(passed, kLength);
    EXPECT_EQ(window.NextWait(now), std::nullopt);
  }
}

TEST(RetryWindow, ProgressOpensANewOne) {
  RetryWindow window(milliseconds(1000));
  RetryWindow::Clock::time_point now;
  ASSERT_TRUE(window.NextWait(now).has_value());
  now += milliseconds(1000);
  ASSERT_FALSE(window.NextWait(now).has_value());
  window.NoteProgress();
  const std::optional<milliseconds> wait = window.NextWait(now);
  ASSERT_TRUE(wait.has_value());
  EXPECT_LE(*wait, milliseconds(100));
}

TEST(RetryWindow, ClientsDoNotComeBackTogether) {
  std::optional<milliseconds> first;
  bool differ = false;
  for (int i = 0; i < 100 && !differ; ++i) {
    const auto window = std::make_unique<RetryWindow>(milliseconds(1000));
    const std::optional<milliseconds> wait = window->NextWait({});
    differ = first.has_value() && wait != first;
    if (!first.has_value()) first = wait;
  }
  EXPECT_TRUE(differ);
}

TEST(RetryWindow, OfNoLengthHasNoSecondAttempt) {
  EXPECT_EQ(RetryWindow(milliseconds(0)).NextWait({}), std::nullopt);
  EXPECT_EQ(RetryWindow(milliseconds(-1)).NextWait({}), std::nullopt);
  EXPECT_NE(RetryWindow(milliseconds::max()).NextWait({}), std::nullopt);
}

TEST(Retry, WaitsForAServerThatStartsLater) {
  const TempDir dir;
  FunctionProvider provider([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(CursorOver({{0, 4096}}, 8192));
  });
  rpc::ServerOptions options;
  options.listen = "unix://" + (dir / "s");
  absl::StatusOr<std::unique_ptr<rpc::Server>> server = nullptr;
  rpc::ListRequest request = RequestTo(options.listen);
  int attempts = 0;
  request.on_resume = [&](uint64_t offset, const absl::Status& reason) {
    EXPECT_EQ(offset, 0u);
    EXPECT_EQ(reason.code(), StatusCode::kUnavailable);
    if (++attempts == 2) server = rpc::Server::Start(provider, options);
  };
  auto cursor = rpc::RemoteCursor::Open(request);
  ASSERT_OK(cursor);
  EXPECT_GE(attempts, 2);
  EXPECT_EQ((*cursor)->resumes(), 0);
  EXPECT_EQ(ValueOf(test::Drain(**cursor)), (Ranges{{0, 4096}}));
}

TEST(Retry, GivesUpWhenTheWindowIsUsedUp) {
  const FakeServer server([=](const FakeServer::Request& request) -> Script {
    if (request.snapshot_id() == "away") return {.status = kAway};
    if (request.starting_offset() == 0) {
      return {.messages = {Variable(100, {{0, 10}})}, .status = kAway};
    }
    return {.messages = {Variable(100, {})}, .status = kAway};  // a message without progress
  });
  for (const char* snapshot : {"away", "breaks"}) {
    for (const milliseconds window : {milliseconds(0), milliseconds(250)}) {
      rpc::ListRequest request = RequestTo(server.address());
      request.snapshot_id = snapshot;
      request.retry_for = window;
      const int before = server.calls();
      const auto began = std::chrono::steady_clock::now();
      const absl::Status status = ListAll(request).status();
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      EXPECT_THAT(status.ToString(), HasSubstr("connection lost"));
      EXPECT_GE(std::chrono::steady_clock::now() - began, window);
      const int calls = server.calls() - before;
      if (window == milliseconds(0)) {
        EXPECT_EQ(calls, 1);
      } else {
        EXPECT_GE(calls, 2);
      }
    }
  }
}

// A host without an address: too many dots for any, so that no name server is asked.
constexpr char kNowhere[] = "no..where:1";

TEST(Retry, AHostWithoutAnAddressIsNotWaitedForLong) {
  rpc::ListRequest request = RequestTo(kNowhere);
  request.retry_for = std::chrono::minutes(5);
  int attempts = 0;
  request.on_resume = [&](uint64_t, const absl::Status& reason) {
    ++attempts;
    EXPECT_THAT(std::string(reason.message()), HasSubstr(kNowhere));
  };
  const auto began = std::chrono::steady_clock::now();
  const absl::Status status = ListAll(request).status();
  // The request's own time, a minute, was not used up.
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("can't connect to no..where:1: "));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(40));
  // A name may be new.
  EXPECT_GE(attempts, 2);
}

TEST(Retry, FFASocketThatCanNotComeIsNotWaitedForLong) {
  const TempDir dir;
  rpc::ListRequest request = RequestTo("unix://" + (dir / "mistyped/s"));
  request.retry_for = std::chrono::minutes(5);
  int attempts = 0;
  request.on_resume = [&](uint64_t, const absl::Status& reason) {
    ++attempts;
    EXPECT_THAT(std::string(reason.message()), HasSubstr("its directory does not exist"));
  };
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(ListAll(request).status().code(), StatusCode::kUnavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(40));
  EXPECT_GE(attempts, 2);
}

TEST(Retry, ProgressResetsTheWindow) {
  // One tuple per call: the retry delays, at least 50 ms each, add up to more than the window.
  constexpr uint64_t kTuples = 20;
  const FakeServer server([=](const FakeServer::Request& request) -> Script {
    const auto next = (static_cast<uint64_t>(request.starting_offset()) + 9) / 10;
    if (next + 1 == kTuples) return {.messages = {Variable(1000, {{next * 10, 5}})}};
    return {.messages = {Variable(1000, {{next * 10, 5}})}, .status = kAway};
  });
  rpc::ListRequest request = RequestTo(server.address());
  request.retry_for = milliseconds(700);
  const auto tuples = ListAll(request);
  ASSERT_OK(tuples);
  EXPECT_EQ(tuples->size(), kTuples);
}

TEST(Retry, OnlyWhatMayPassIsTriedAgain) {
  // Before the first message CANCELLED may be an answer; later it means the server is shutting
  // down.
  for (const auto code : {grpc::StatusCode::NOT_FOUND, grpc::StatusCode::CANCELLED,
                          grpc::StatusCode::FAILED_PRECONDITION, grpc::StatusCode::INTERNAL}) {
    const FakeServer server({.status = {code, "because"}});
    EXPECT_EQ(static_cast<int>(ListAll(RequestTo(server.address())).status().code()),
              static_cast<int>(code));
    EXPECT_EQ(server.calls(), 1);
  }
}

const grpc::Status kTooLong(grpc::StatusCode::DEADLINE_EXCEEDED, "ten minutes are over");

// One tuple for each call, from `next` on, until `tuples` have been sent.
Script OneTuple(const FakeServer::Request& request, uint64_t tuples) {
  const auto next = (static_cast<uint64_t>(request.starting_offset()) + 9) / 10;
  Script script{.messages = {Variable(1000, {{next * 10, 5}})}};
  if (next + 1 < tuples) script.status = kTooLong;
  return script;
}

TEST(Retry, AServersLimitForStreamsIsNoEnd) {
  constexpr uint64_t kTuples = 6;
  const FakeServer server([](const FakeServer::Request& r) { return OneTuple(r, kTuples); });
  for (const bool limited : {true, false}) {
    rpc::ListRequest request = RequestTo(server.address());
    if (!limited) request.timeout.reset();
    std::string offsets;
    request.on_resume = [&](uint64_t offset, const absl::Status& reason) {
      EXPECT_EQ(reason.code(), StatusCode::kDeadlineExceeded);
      offsets += std::to_string(offset) + " ";
    };
    ASSERT_OK_AND_ASSIGN(const Ranges tuples, ListAll(request));
    EXPECT_EQ(tuples, (Ranges{{0, 5}, {10, 5}, {20, 5}, {30, 5}, {40, 5}, {50, 5}}));
    EXPECT_EQ(offsets, "5 15 25 35 45 ");
    request.retry_for = milliseconds(0);
    EXPECT_EQ(ListAll(request).status().code(), StatusCode::kDeadlineExceeded);
  }
}

TEST(Retry, AServersLimitWithoutATupleIsFinal) {
  const FakeServer server([](const FakeServer::Request& request) -> Script {
    if (request.snapshot_id() == "nothing") return {.status = kTooLong};
    if (request.snapshot_id() == "quiet") {
      return {.messages = {Variable(100, {}), Variable(100, {})}, .status = kTooLong};
    }
    if (request.starting_offset() == 0) {
      return {.messages = {Variable(100, {{0, 10}})}, .status = kTooLong};
    }
    if (request.snapshot_id() == "silent later") return {.status = kTooLong};
    return {.messages = {Variable(100, {})}, .status = kTooLong};  // "quiet later"
  });
  for (const auto& [snapshot, calls] : std::map<std::string, int>{
           {"nothing", 1}, {"quiet", 1}, {"silent later", 2}, {"quiet later", 2}}) {
    rpc::ListRequest request = RequestTo(server.address());
    request.snapshot_id = snapshot;
    const int before = server.calls();
    const absl::Status status = ListAll(request).status();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << snapshot;
    EXPECT_THAT(std::string(status.message()), HasSubstr("ten minutes are over")) << snapshot;
    EXPECT_EQ(server.calls() - before, calls) << snapshot;
  }
}

TEST(Retry, TheCallersOwnLimitsAreFinal) {
  const FakeServer server({.messages = {Variable(100, {{0, 10}})}, .hang = true});
  for (const bool stall : {true, false}) {
    rpc::ListRequest request = RequestTo(server.address());
    (stall ? request.stall_timeout : request.timeout) = milliseconds(300);
    const int before = server.calls();
    request.on_resume = [](uint64_t, const absl::Status& reason) {
      ADD_FAILURE() << "resumed after " << reason;
    };
    EXPECT_EQ(ListAll(request).status().code(), StatusCode::kDeadlineExceeded) << stall;
    EXPECT_EQ(server.calls() - before, 1) << stall;
  }
}

TEST(Retry, ALimitThatIsReachedAgainAndAgainEndsWithTheCallersTime) {
  const FakeServer server([](const FakeServer::Request& r) { return OneTuple(r, 90); });
  rpc::ListRequest request = RequestTo(server.address());
  request.timeout = milliseconds(400);
  EXPECT_EQ(ListAll(request).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_GE(server.calls(), 2);
}

TEST(Retry, StoppingEndsTheWait) {
  const FakeServer server([=](const FakeServer::Request& request) -> Script {
    if (request.snapshot_id() == "away") return {.status = kAway};
    return {.messages = {Variable(100, {{0, 10}})}, .status = kAway};
  });
  for (const char* snapshot : {"away", "breaks"}) {
    std::stop_source stop;
    rpc::ListRequest request = RequestTo(server.address());
    request.snapshot_id = snapshot;
    request.stop = stop.get_token();
    request.timeout.reset();
    request.on_resume = [&](uint64_t, const absl::Status&) { stop.request_stop(); };
    EXPECT_EQ(ListAll(request).status().code(), StatusCode::kCancelled);
  }
}

TEST(Retry, SeekWaitsToo) {
  std::atomic<bool> away = false;
  const FakeServer server([&](const FakeServer::Request& request) -> Script {
    if (away.exchange(false)) return {.status = kAway};
    if (request.starting_offset() > 0) return {.messages = {Variable(100, {{50, 10}})}};
    return {.messages = {Variable(100, {{0, 10}, {50, 10}})}};
  });
  ASSERT_OK_AND_ASSIGN(const auto cursor, rpc::RemoteCursor::Open(RequestTo(server.address())));
  away = true;
  ASSERT_OK(cursor->Seek(40));
  EXPECT_EQ(cursor->resumes(), 1);
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), (Ranges{{50, 10}}));
}

}  // namespace retry_test
}  // namespace cbt

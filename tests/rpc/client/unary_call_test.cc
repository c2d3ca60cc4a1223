// One message in each direction, or an error.
#include "rpc/client/unary_call.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/address.h"
#include "rpc/client/connect.h"
#include "tests/rpc/support/fake_server.h"
#include "tests/support/status.h"

namespace cbt::rpc {
namespace unary_call_test {

using absl::StatusCode;
using std::chrono::milliseconds;
using test::FakeServer;
using test::Script;

absl::StatusOr<std::string> Ask(const Script& script, const std::stop_token& stop = {},
                                milliseconds timeout = std::chrono::minutes(1)) {
  const FakeServer server(script);
  const auto channel = test::ValueOf(ConnectForGood(*net::ParseAddress(server.address()), {}));
  UnaryCall call(*channel, std::chrono::system_clock::now() + timeout);
  absl::StatusOr<absl::Cord> answer = call.Run(test::kAllocatedPath, "", stop);
  if (!answer.ok()) return answer.status();
  const std::string key(call.Initial("key").value_or("none"));
  return std::string(*answer) + " " + key;
}

TEST(UnaryCall, ReturnsTheOnlyMessage) {
  EXPECT_EQ(test::ValueOf(Ask({.messages = {"one"}})), "one none");
  EXPECT_EQ(test::ValueOf(Ask({.messages = {""}, .initial = {{"key", "value"}}})), " value");
}

// Never an empty answer, which could pass for a page without blocks.
TEST(UnaryCall, NoMessageAndMoreThanOneAreErrors) {
  EXPECT_EQ(Ask({}).status().code(), StatusCode::kInternal);
  EXPECT_EQ(Ask({.messages = {"one", "two"}}).status().code(), StatusCode::kInternal);
  EXPECT_EQ(Ask({.messages = {"one", "two"}, .hang = true}).status().code(), StatusCode::kInternal);
}

TEST(UnaryCall, TheServersErrorCountsAlsoAfterAMessage) {
  const grpc::Status refused(grpc::StatusCode::NOT_FOUND, "no");
  EXPECT_EQ(Ask({.status = refused}).status(), absl::NotFoundError("no"));
  EXPECT_EQ(Ask({.messages = {"one"}, .status = refused}).status(), absl::NotFoundError("no"));
}

TEST(UnaryCall, EndsWhenItIsStoppedOrLate) {
  for (const std::vector<std::string>& messages :
       std::vector<std::vector<std::string>>{{}, {"one"}}) {
    const Script script{.messages = messages, .hang = true};
    EXPECT_EQ(Ask(script, {}, milliseconds(100)).status().code(), StatusCode::kDeadlineExceeded);
    std::stop_source stop;
    std::thread stopper([&stop] {
      std::this_thread::sleep_for(milliseconds(50));
      stop.request_stop();
    });
    EXPECT_EQ(Ask(script, stop.get_token()).status().code(), StatusCode::kCancelled);
    stopper.join();
    EXPECT_EQ(Ask(script, stop.get_token()).status().code(), StatusCode::kCancelled) << "at once";
  }
}

}  // namespace unary_call_test
}  // namespace cbt::rpc

// Where streams that are opened again go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "cbt/rpc/client.h"
#include "tests/rpc/support/fake_server.h"
#include "tests/rpc/support/list_all.h"
#include "tests/support/cursors.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace resume_test {

using absl::StatusCode;
using reference::Ranges;

const grpc::Status kLost(grpc::StatusCode::UNAVAILABLE, "connection lost");

rpc::ListRequest RequestTo(const FakeServer& server) {
  rpc::ListRequest request;
  request.address = server.address();
  request.snapshot_id = "s";
  request.timeout = std::chrono::seconds(60);
  return request;
}

// A server may say type and capacity before it has found a tuple.
TEST(Resume, TuplesThatReachBackAreCutAfterAMessageWithoutAny) {
  const std::string none = Variable(100, {});
  const FakeServer server([&](const FakeServer::Request& request) -> Script {
    if (request.starting_offset() == 0) {
      return {.messages = {Variable(100, {{0, 10}})}, .status = kLost};
    }
    return {.messages = {none, none, Variable(100, {{0, 30}, {50, 10}})}};
  });
  const auto cursor = rpc::RemoteCursor::Open(RequestTo(server));
  ASSERT_OK(cursor);
  EXPECT_EQ(ValueOf(Drain(**cursor)), (Ranges{{0, 10}, {10, 20}, {50, 10}}));
  EXPECT_EQ(ValueOf(DrainFrom(**cursor, 20)), (Ranges{{20, 10}, {50, 10}}));
  // Blocks that have moved are a lie there, too.
  const FakeServer liar([](const FakeServer::Request& request) -> Script {
    if (request.starting_offset() == 0) {
      return {.messages = {Fixed(100, {{0, 4}})}, .status = kLost};
    }
    return {.messages = {Fixed(100, {}), Fixed(100, {{2, 4}})}};
  });
  EXPECT_EQ(ListAll(RequestTo(liar)).status().code(), StatusCode::kDataLoss);
}

}  // namespace resume_test
}  // namespace cbt::test

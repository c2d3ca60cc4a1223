// Turns an answer's frames into events, one by one.
#include "rpc/http2/response.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/status.h"

namespace cbt::rpc::http2 {
namespace response_test {

using absl::StatusCode;

HeaderBlock Block(const std::vector<std::pair<std::string, std::string>>& fields) {
  HeaderBlock block;
  for (const auto& [name, value] : fields) block.Add(name, value);
  return block;
}

const HeaderBlock kHead = Block({{":status", "200"}, {"content-type", "application/grpc"}});
const HeaderBlock kOk = Block({{"grpc-status", "0"}});
const std::string kOne("\0\0\0\0\3one", 8);

// Takes the messages available now.
std::vector<std::string> Take(Response& response) {
  std::vector<std::string> messages;
  absl::Cord message;
  while (response.Next(message)) messages.emplace_back(message);
  return messages;
}

TEST(Response, TheEndComesAfterTheLastMessage) {
  Response response(100);
  response.OnHeaders(kHead, false);
  response.OnData(absl::Cord(kOne + kOne));
  response.OnTrailers(kOk);
  response.OnEnd();
  EXPECT_TRUE(response.ended());
  absl::Cord message;
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(response.status().has_value());
    ASSERT_TRUE(response.Next(message));
  }
  EXPECT_FALSE(response.Next(message));
  ASSERT_OK(*response.status());
}

TEST(Response, AFailureComesAfterTheMessagesBeforeIt) {
  Response response(100);
  response.OnHeaders(kHead, false);
  response.OnData(absl::Cord(kOne + kOne.substr(0, 6)));
  response.OnFailure(absl::UnavailableError("lost"));
  EXPECT_FALSE(response.status().has_value());
  EXPECT_EQ(Take(response), (std::vector<std::string>{"one"}));
  EXPECT_EQ(*response.status(), absl::UnavailableError("lost"));
}

TEST(Response, AFailureWithoutAReasonIsNoSuccess) {
  Response response(100);
  response.OnHeaders(kHead, false);
  response.OnTrailers(kOk);
  response.OnFailure(absl::OkStatus());
  Take(response);
  EXPECT_EQ(response.status()->code(), StatusCode::kUnknown);
}

TEST(Response, NothingChangesAnEnd) {
  Response response(100);
  response.OnHeaders(kHead, false);
  response.OnTrailers(Block({{"grpc-status", "5"}, {"grpc-message", "gone"}}));
  response.OnEnd();
  response.OnFailure(absl::UnavailableError("lost"));
  response.OnHeaders(kHead, false);
  response.OnTrailers(kOk);
  response.OnEnd();
  response.OnData(absl::Cord(kOne));
  EXPECT_TRUE(Take(response).empty());
  EXPECT_EQ(*response.status(), absl::NotFoundError("gone"));
}

TEST(Response, EventsOutOfOrderAreErrors) {
  Response early(100);
  early.OnData(absl::Cord(kOne));
  EXPECT_EQ(early.status()->code(), StatusCode::kInternal);
  Response late(100);
  late.OnHeaders(kHead, false);
  late.OnTrailers(kOk);
  late.OnData(absl::Cord(kOne));
  EXPECT_EQ(late.status()->code(), StatusCode::kInternal);
  Response alone(100);
  alone.OnTrailers(kOk);
  EXPECT_EQ(alone.status()->code(), StatusCode::kInternal);
  Response cut(100);
  HeaderBlock block = kHead;
  block.set_cut();
  cut.OnHeaders(block, false);
  EXPECT_EQ(cut.status()->code(), StatusCode::kResourceExhausted);
}

// Found by fuzzing, with an empty status.
TEST(Response, AStatusBeforeTheEndIsAnErrorWhateverTheTrailersSay) {
  for (const char* status : {"0", "5", ""}) {
    Response response(100);
    response.OnHeaders(
        Block({{":status", "200"}, {"content-type", "application/grpc"}, {"grpc-status", status}}),
        false);
    response.OnData(absl::Cord(kOne));
    response.OnTrailers(kOk);
    response.OnEnd();
    EXPECT_TRUE(Take(response).empty());
    EXPECT_EQ(response.status()->code(), StatusCode::kUnknown) << status;
  }
}

}  // namespace response_test
}  // namespace cbt::rpc::http2

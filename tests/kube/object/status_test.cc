#include "cbt/kube/status.h"

#include <gtest/gtest.h>

namespace cbt::kube {
namespace status_test {

TEST(StatusTest, CodesOfHttp) {
  using absl::StatusCode;
  const struct {
    int http;
    const char* reason;
    StatusCode code;
  } kCases[] = {
      {400, "BadRequest", StatusCode::kInvalidArgument},
      {401, "Unauthorized", StatusCode::kUnauthenticated},
      {403, "Forbidden", StatusCode::kPermissionDenied},
      {404, "NotFound", StatusCode::kNotFound},
      {405, "MethodNotAllowed", StatusCode::kInvalidArgument},
      {409, "Conflict", StatusCode::kAborted},
      {409, "AlreadyExists", StatusCode::kAlreadyExists},
      {409, "", StatusCode::kAborted},
      {410, "Expired", StatusCode::kOutOfRange},
      {410, "Gone", StatusCode::kOutOfRange},
      {422, "Invalid", StatusCode::kInvalidArgument},
      {429, "TooManyRequests", StatusCode::kResourceExhausted},
      {500, "InternalError", StatusCode::kInternal},
      {501, "", StatusCode::kUnimplemented},
      {503, "ServiceUnavailable", StatusCode::kUnavailable},
      {504, "Timeout", StatusCode::kUnavailable},
      {302, "", StatusCode::kUnavailable},
      {418, "", StatusCode::kUnavailable},
  };
  for (const auto& one : kCases) {
    const absl::Status status = MakeApiStatus(one.http, one.reason, "text");
    EXPECT_EQ(status.code(), one.code) << one.http << one.reason;
    EXPECT_EQ(HttpCodeOf(status), one.http);
    EXPECT_EQ(ReasonOf(status), one.reason);
    EXPECT_EQ(std::string(status.message()), "text");
    EXPECT_EQ(RetryAfterOf(status), std::nullopt);
    EXPECT_EQ(IsExpired(status), one.http == 410);
    EXPECT_EQ(IsConflict(status), one.http == 409 && one.code == StatusCode::kAborted);
  }
}

TEST(StatusTest, RetryAfter) {
  EXPECT_EQ(RetryAfterOf(MakeApiStatus(429, "", "", std::chrono::milliseconds(1500))),
            std::chrono::milliseconds(1500));
  EXPECT_FALSE(MakeApiStatus(429, "", "").message().empty());
}

TEST(StatusTest, NotOfAServer) {
  for (const absl::Status& status : {absl::OkStatus(), absl::NotFoundError("x")}) {
    EXPECT_EQ(HttpCodeOf(status), 0);
    EXPECT_EQ(ReasonOf(status), "");
    EXPECT_FALSE(IsConflict(status));
  }
}

}  // namespace status_test
}  // namespace cbt::kube

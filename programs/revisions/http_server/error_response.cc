#include "programs/revisions/http_server/error_response.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::kube::http_server {
namespace {

struct CodeAndReason {
  int code;
  const char* reason;
};

CodeAndReason Of(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return {422, "Invalid"};
    case absl::StatusCode::kUnauthenticated:
      return {401, "Unauthorized"};
    case absl::StatusCode::kPermissionDenied:
      return {403, "Forbidden"};
    case absl::StatusCode::kNotFound:
      return {404, "NotFound"};
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
      return {409, "Conflict"};
    case absl::StatusCode::kResourceExhausted:
      return {429, "TooManyRequests"};
    case absl::StatusCode::kUnimplemented:
      return {501, "NotImplemented"};
    case absl::StatusCode::kUnavailable:
      return {503, "ServiceUnavailable"};
    case absl::StatusCode::kDeadlineExceeded:
      return {504, "Timeout"};
    default:
      return {500, "InternalError"};
  }
}

}  // namespace

Response ErrorResponse(int code, std::string_view reason, std::string_view message,
                       std::optional<std::chrono::seconds> retry_after) {
  Response response = {.code = code};
  response.body = absl::StrCat(
      R"({"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":)",
      JsonString(message), R"(,"reason":)", JsonString(reason));
  if (retry_after.has_value()) {
    const std::string seconds = std::to_string(retry_after->count());
    absl::StrAppend(&response.body, R"(,"details":{"retryAfterSeconds":)", seconds, "}");
    response.headers.emplace_back("Retry-After", seconds);
  }
  absl::StrAppend(&response.body, R"(,"code":)", code, "}\n");
  return response;
}

Response ErrorResponse(const absl::Status& error) {
  const CodeAndReason of = Of(error.code());
  std::optional<std::chrono::seconds> retry_after;
  if (of.code == 429 || of.code == 503) retry_after = std::chrono::seconds(1);
  const std::string message(error.message());
  return ErrorResponse(of.code, of.reason, message, retry_after);
}

}  // namespace cbt::kube::http_server

#include "programs/revisions/http_server/error_response.h"

#include <string>
#include <utility>

#include "base/json_builder.h"

namespace cbt::kube::http_server {
namespace {

int CodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 422;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

// As Kubernetes names them.
const char* ReasonOf(int code) {
  constexpr std::pair<int, const char*> kReasons[] = {{401, "Unauthorized"},
                                                      {403, "Forbidden"},
                                                      {404, "NotFound"},
                                                      {405, "MethodNotAllowed"},
                                                      {409, "Conflict"},
                                                      {413, "RequestEntityTooLarge"},
                                                      {415, "UnsupportedMediaType"},
                                                      {422, "Invalid"},
                                                      {429, "TooManyRequests"},
                                                      {501, "NotImplemented"},
                                                      {503, "ServiceUnavailable"},
                                                      {504, "Timeout"}};
  for (const auto& [known, reason] : kReasons) {
    if (known == code) return reason;
  }
  return code < 500 ? "BadRequest" : "InternalError";
}

}  // namespace

Response ErrorResponse(int code, std::string_view message,
                       std::optional<std::chrono::seconds> retry_after) {
  Response response = {.code = code};
  JsonBuilder json;
  json.BeginObject().Field("kind", "Status").Field("apiVersion", "v1").Key("metadata");
  json.BeginObject().EndObject().Field("status", "Failure").Field("message", message);
  json.Field("reason", ReasonOf(code));
  if (retry_after.has_value()) {
    json.Key("details").BeginObject().Field("retryAfterSeconds", retry_after->count()).EndObject();
    response.headers.emplace_back("Retry-After", std::to_string(retry_after->count()));
  }
  response.body = json.Field("code", code).EndObject().Take() + "\n";
  return response;
}

Response ErrorResponse(const absl::Status& error) {
  const int code = CodeOf(error.code());
  std::optional<std::chrono::seconds> retry_after;
  if (code == 429 || code == 503) retry_after = std::chrono::seconds(1);
  return ErrorResponse(code, std::string(error.message()), retry_after);
}

}  // namespace cbt::kube::http_server

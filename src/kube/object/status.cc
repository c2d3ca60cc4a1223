#include "cbt/kube/status.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::kube {
namespace {

// Payloads of statuses, by name.
constexpr char kHttpCode[] = "libcbt/kube-http-code";
constexpr char kReason[] = "libcbt/kube-reason";
constexpr char kRetryAfter[] = "libcbt/kube-retry-after-ms";

std::string PayloadOf(const absl::Status& status, const char* name) {
  const absl::optional<absl::Cord> payload = status.GetPayload(name);
  return payload ? std::string(*payload) : std::string();
}

absl::StatusCode CodeOf(int http_code, std::string_view reason) {
  switch (http_code) {
    case 400:
    case 405:
    case 406:
    case 413:
    case 415:
    case 422:
      return absl::StatusCode::kInvalidArgument;
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 409:
      return reason == "AlreadyExists" ? absl::StatusCode::kAlreadyExists
                                       : absl::StatusCode::kAborted;
    case 410:
      return absl::StatusCode::kOutOfRange;
    case 429:
      return absl::StatusCode::kResourceExhausted;
    case 500:
      return absl::StatusCode::kInternal;
    case 501:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

}  // namespace

std::string ReasonOf(const absl::Status& status) { return PayloadOf(status, kReason); }

int HttpCodeOf(const absl::Status& status) {
  int code = 0;
  return absl::SimpleAtoi(PayloadOf(status, kHttpCode), &code) ? code : 0;
}

std::optional<std::chrono::milliseconds> RetryAfterOf(const absl::Status& status) {
  int64_t wait = 0;
  if (!absl::SimpleAtoi(PayloadOf(status, kRetryAfter), &wait)) return std::nullopt;
  return std::chrono::milliseconds(wait);
}

bool IsConflict(const absl::Status& status) {
  return HttpCodeOf(status) == 409 && absl::IsAborted(status);
}

bool IsExpired(const absl::Status& status) { return HttpCodeOf(status) == 410; }

absl::Status MakeApiStatus(int http_code, std::string_view reason, std::string_view message,
                           std::optional<std::chrono::milliseconds> retry_after) {
  absl::Status status(CodeOf(http_code, reason),
                      message.empty() ? absl::StrCat("the API server answered HTTP ", http_code)
                                      : std::string(message));
  status.SetPayload(kHttpCode, absl::Cord(absl::StrCat(http_code)));
  if (!reason.empty()) status.SetPayload(kReason, absl::Cord(AbslView(reason)));
  if (retry_after) {
    const int64_t wait = std::max<int64_t>(retry_after->count(), 0);
    status.SetPayload(kRetryAfter, absl::Cord(absl::StrCat(wait)));
  }
  return status;
}

}  // namespace cbt::kube

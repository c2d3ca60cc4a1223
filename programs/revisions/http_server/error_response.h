// Errors as answers of HTTP, in the form that clients of Kubernetes understand.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SERVER_ERROR_RESPONSE_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SERVER_ERROR_RESPONSE_H_

#include <chrono>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "programs/revisions/http_server/http_message.h"

namespace cbt::kube::http_server {

// A Status object with the code's reason ("NotFound") and this message. `retry_after`: when the
// client may try again, in the header Retry-After and in the object.
Response ErrorResponse(int code, std::string_view message,
                       std::optional<std::chrono::seconds> retry_after = {});

// The same of an error of this library, which must have a text that the client may read:
//
//   INVALID_ARGUMENT, OUT_OF_RANGE 422   UNAUTHENTICATED 401   PERMISSION_DENIED 403
//   NOT_FOUND 404   ABORTED, ALREADY_EXISTS, FAILED_PRECONDITION 409   RESOURCE_EXHAUSTED 429
//   UNIMPLEMENTED 501   UNAVAILABLE 503   DEADLINE_EXCEEDED 504   anything else 500
//
// 429 and 503 ask for another attempt after a second.
Response ErrorResponse(const absl::Status& error);

}  // namespace cbt::kube::http_server

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SERVER_ERROR_RESPONSE_H_

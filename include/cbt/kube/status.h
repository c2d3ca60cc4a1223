// What the API server says about a failure, beside the code and the text of an absl::Status. Part
// of cbt::kube.
//
// Every error of this library is an absl::Status. One that came as an answer of the API server also
// has the HTTP code, the reason of its Status object and, where the server sent one, a wait before
// the next attempt. Codes:
//
//   HTTP                          code
//   400, 405, 406, 413, 415, 422  INVALID_ARGUMENT
//   401                           UNAUTHENTICATED
//   403                           PERMISSION_DENIED
//   404                           NOT_FOUND
//   409 AlreadyExists             ALREADY_EXISTS
//   409 otherwise                 ABORTED (Conflict: read the object again, then try again)
//   410                           OUT_OF_RANGE (Expired, Gone: list again from the beginning)
//   429                           RESOURCE_EXHAUSTED
//   500                           INTERNAL
//   501                           UNIMPLEMENTED
//   502, 503, 504, other 5xx      UNAVAILABLE
//   anything else, 3xx included   UNAVAILABLE (not an API server's answer)
//
// Without an answer: UNAVAILABLE for trouble with names, network, TLS or the protocol, and for an
// answer that is cut, malformed or not JSON; DEADLINE_EXCEEDED; CANCELLED; RESOURCE_EXHAUSTED for
// an answer larger than the limit, for too many calls at once and for lack of memory.
#ifndef CBT_KUBE_STATUS_H_
#define CBT_KUBE_STATUS_H_

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cbt/version.h"

namespace cbt::kube {

// The reason of the API server's Status object, "NotFound" or "Conflict" for example; empty if
// `status` is OK or did not come from an API server, or if the server gave none.
std::string ReasonOf(const absl::Status& status);

// The HTTP code of the answer, or 0 if there was none.
int HttpCodeOf(const absl::Status& status);

// How long the server asks to wait before the next attempt (Retry-After, or retryAfterSeconds of
// its Status).
std::optional<std::chrono::milliseconds> RetryAfterOf(const absl::Status& status);

// 409 Conflict: somebody else changed the object since it was read.
bool IsConflict(const absl::Status& status);

// 410: the resource version or the continue token is too old.
bool IsExpired(const absl::Status& status);

// A status as the client makes it from an answer; for watch events of type ERROR, fakes and tests.
// `http_code` decides on the code as above, with `reason` where that matters. `message` must hold
// no secret.
absl::Status MakeApiStatus(int http_code, std::string_view reason, std::string_view message,
                           std::optional<std::chrono::milliseconds> retry_after = {});

}  // namespace cbt::kube

#endif  // CBT_KUBE_STATUS_H_

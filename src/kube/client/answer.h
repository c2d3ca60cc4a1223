// An answer of the API server, and what is made of one that is an error.
#ifndef CBT_KUBE_CLIENT_ANSWER_H_
#define CBT_KUBE_CLIENT_ANSWER_H_

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "cbt/kube/object.h"
#include "kube/object/wiped_buffer.h"

namespace cbt::kube {

struct Answer {
  int http_code = 0;
  std::string content_type = {};
  std::optional<std::chrono::milliseconds> retry_after = {};  // of the header
  WipedBuffer body = {};
};

// The error that `answer` is. `what`: the request, for messages.
absl::Status ErrorOf(const Answer& answer, std::string_view what);

// An answer that no API server gives: UNAVAILABLE.
absl::Status WrongAnswer(std::string_view what, std::string_view why);

// What is expected of an object in an answer. Empty: anything.
struct Expected {
  std::string what = {};  // the request, for messages
  std::string api_version = {};
  std::string kind = {};
  std::string name_space = {};
  std::string name = {};
};

// The one object of an answer below 300. Errors: UNAVAILABLE.
absl::StatusOr<Object> ObjectOf(const Answer& answer, const Expected& expected);

// The list of an answer below 300. Its elements get the apiVersion and kind that are expected.
// Errors: UNAVAILABLE.
absl::StatusOr<ObjectList> ListOf(const Answer& answer, const Expected& expected);

// Reads a Retry-After header: seconds, or a date. `now`: UNIX time in seconds.
std::optional<std::chrono::milliseconds> ParseRetryAfter(std::string_view text, int64_t now);

}  // namespace cbt::kube

#endif  // CBT_KUBE_CLIENT_ANSWER_H_

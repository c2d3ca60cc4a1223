// What the API server asks a validating webhook, and the answer.
#ifndef CBT_PROGRAMS_REVISIONS_SESSIONS_ADMISSION_REVIEW_H_
#define CBT_PROGRAMS_REVISIONS_SESSIONS_ADMISSION_REVIEW_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cbt/kube/object.h"
#include "cbt/kube/typed_objects.h"

namespace cbt::kube::sessions {

struct AdmissionRequest {
  std::string uid = {};
  std::string operation = {};  // "CREATE"
  std::string group = {};
  std::string resource = {};  // "snapshotsessionrequests"
  std::string subresource = {};
  std::string name_space = {};
  UserInfo user = {};  // who asks for the operation
  Object object = {};  // as it is to be stored

  // Reads an AdmissionReview of admission.k8s.io/v1.
  // Errors: INVALID_ARGUMENT with the field that is wrong.
  static absl::StatusOr<AdmissionRequest> Parse(std::string_view json);
};

struct AdmissionVerdict {
  bool allowed = false;
  // If not allowed: the code, reason and message that the user gets.
  int code = 403;
  std::string reason = "Forbidden";
  std::string message = {};
};

// The AdmissionReview with the answer, as JSON.
std::string AnswerReview(const std::string& uid, const AdmissionVerdict& verdict);

}  // namespace cbt::kube::sessions

#endif  // CBT_PROGRAMS_REVISIONS_SESSIONS_ADMISSION_REVIEW_H_

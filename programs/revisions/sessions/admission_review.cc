#include "programs/revisions/sessions/admission_review.h"

#include "absl/strings/str_cat.h"
#include "kube/object/field_reader.h"

namespace cbt::kube::sessions {
namespace {

constexpr char kApiVersion[] = "admission.k8s.io/v1";
constexpr char kKind[] = "AdmissionReview";

}  // namespace

absl::StatusOr<AdmissionRequest> AdmissionRequest::Parse(std::string_view json) {
  const absl::StatusOr<Object> review = Object::ParseRequest(json);
  if (!review.ok()) return review.status();
  if (review->api_version() != kApiVersion || review->kind() != kKind) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", kKind, " of ", kApiVersion));
  }
  AdmissionRequest request;
  FieldReader reader(*review);
  reader.Read(review->String({"request", "uid"}), request.uid);
  reader.Read(review->String({"request", "operation"}), request.operation);
  reader.Text({"request", "resource", "group"}, request.group);
  reader.Read(review->String({"request", "resource", "resource"}), request.resource);
  reader.Text({"request", "subResource"}, request.subresource);
  reader.Text({"request", "namespace"}, request.name_space);
  reader.Text({"request", "userInfo", "username"}, request.user.username);
  reader.Text({"request", "userInfo", "uid"}, request.user.uid);
  reader.Read(review->Strings({"request", "userInfo", "groups"}), request.user.groups);
  reader.Read(review->StringsMap({"request", "userInfo", "extra"}), request.user.extra);
  reader.Read(review->Child({"request", "object"}), request.object);
  if (!reader.ok()) return reader.status();
  return request;
}

std::string AnswerReview(const std::string& uid, const AdmissionVerdict& verdict) {
  Object review(kApiVersion, kKind);
  review.SetString({"response", "uid"}, uid);
  review.SetBool({"response", "allowed"}, verdict.allowed);
  if (!verdict.allowed) {
    review.SetInt({"response", "status", "code"}, verdict.code);
    review.SetString({"response", "status", "reason"}, verdict.reason);
    review.SetString({"response", "status", "message"}, verdict.message);
  }
  return review.ToJson();
}

}  // namespace cbt::kube::sessions

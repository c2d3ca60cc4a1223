#include "programs/revisions/sessions/admission_review.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cbt/kube/object.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace {

using kube::Object;
using kube::sessions::AdmissionRequest;
using kube::sessions::AnswerReview;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// As kube-apiserver sends it, shortened.
constexpr char kReview[] =
    R"({"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{)"
    R"("uid":"705ab4f5","kind":{"group":"cbt.storage.k8s.io","version":"v1alpha1","kind":"SnapshotSessionRequest"},)"
    R"("resource":{"group":"cbt.storage.k8s.io","version":"v1alpha1","resource":"snapshotsessionrequests"},)"
    R"("name":"nightly","namespace":"prod","operation":"CREATE",)"
    R"("userInfo":{"username":"system:serviceaccount:backup:app","uid":"u1","groups":["a","b"],)"
    R"("extra":{"example.com/key":["x","y"]}},)"
    R"("object":{"spec":{"snapshots":["monday"]}},"oldObject":null,"dryRun":false}})";

TEST(AdmissionReviewTest, S8AReviewIsRead) {
  const AdmissionRequest request = ValueOf(AdmissionRequest::Parse(kReview));
  EXPECT_EQ(request.uid, "705ab4f5");
  EXPECT_EQ(request.operation, "CREATE");
  EXPECT_EQ(request.group, "cbt.storage.k8s.io");
  EXPECT_EQ(request.resource, "snapshotsessionrequests");
  EXPECT_EQ(request.subresource, "");
  EXPECT_EQ(request.name_space, "prod");
  EXPECT_EQ(request.user.username, "system:serviceaccount:backup:app");
  EXPECT_EQ(request.user.uid, "u1");
  EXPECT_THAT(request.user.groups, ElementsAre("a", "b"));
  EXPECT_THAT(request.user.extra, ElementsAre(Pair("example.com/key", ElementsAre("x", "y"))));
  EXPECT_THAT(ValueOf(request.object.Strings({"spec", "snapshots"})), ElementsAre("monday"));
}

TEST(AdmissionReviewTest, WhatIsNoReviewIsNamed) {
  const auto error = [](const std::string& text) {
    return std::string(AdmissionRequest::Parse(text).status().message());
  };
  std::string other = kReview;
  other.replace(other.find("admission.k8s.io/v1"), 19, "admission.k8s.io/v2");
  EXPECT_THAT(error(other), HasSubstr("admission.k8s.io/v1"));
  EXPECT_THAT(error("{"), testing::Not(testing::IsEmpty()));
  EXPECT_THAT(error("[]"), testing::Not(testing::IsEmpty()));
  EXPECT_THAT(error(R"({"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"})"),
              HasSubstr("request.uid"));
  // Groups of another type must not read as none.
  std::string groups = kReview;
  groups.replace(groups.find(R"(["a","b"])"), 9, R"("everyone")");
  EXPECT_THAT(error(groups), HasSubstr("groups"));
}

TEST(AdmissionReviewTest, S8TheAnswerHasTheFormOfTheQuestion) {
  const Object allowed = ValueOf(Object::Parse(AnswerReview("705ab4f5", {.allowed = true})));
  EXPECT_EQ(allowed.api_version(), "admission.k8s.io/v1");
  EXPECT_EQ(allowed.kind(), "AdmissionReview");
  EXPECT_EQ(ValueOf(allowed.String({"response", "uid"})), "705ab4f5");
  EXPECT_TRUE(ValueOf(allowed.Bool({"response", "allowed"})));
  EXPECT_FALSE(allowed.Has({"response", "status"}));
  // A validating webhook must not send one.
  EXPECT_FALSE(allowed.Has({"response", "patch"}));

  const Object denied = ValueOf(Object::Parse(AnswerReview("u", {.message = "no \"right\""})));
  EXPECT_FALSE(ValueOf(denied.Bool({"response", "allowed"})));
  EXPECT_EQ(ValueOf(denied.Int({"response", "status", "code"})), 403);
  EXPECT_EQ(ValueOf(denied.String({"response", "status", "reason"})), "Forbidden");
  EXPECT_EQ(ValueOf(denied.String({"response", "status", "message"})), "no \"right\"");
}

}  // namespace
}  // namespace cbt::test

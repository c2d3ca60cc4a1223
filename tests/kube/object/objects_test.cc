// The structs of reviews, snapshots and core objects.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cbt/kube/typed_objects.h"
#include "tests/support/status.h"

namespace cbt::kube {
namespace objects_test {

using test::ValueOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Optional;
using testing::Pair;

template <typename T>
absl::StatusOr<T> DecodeText(const std::string& json) {
  return T::Decode(ValueOf(Object::Parse(json)));
}

TEST(ReviewsTest, TokenReview) {
  TokenReview review;
  review.token = Secret("t");
  review.audiences = {"a"};
  EXPECT_EQ(review.Encode().ToJson(),
            R"({"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview",)"
            R"("spec":{"token":"t","audiences":["a"]}})");
  review = ValueOf(DecodeText<TokenReview>(R"({"spec":{"token":"t"},"status":{
      "authenticated":true,"audiences":["a","b"],
      "user":{"username":"u","uid":"1","groups":["g"],"extra":{"k":["v"]}}}})"));
  ASSERT_TRUE(review.status);
  EXPECT_EQ(review.status->user.username, "u");
  EXPECT_THAT(review.status->user.extra, ElementsAre(Pair("k", ElementsAre("v"))));
  EXPECT_TRUE(review.AuthenticatedFor("a"));
  EXPECT_FALSE(review.AuthenticatedFor("c"));
  EXPECT_FALSE(review.AuthenticatedFor(""));
  EXPECT_TRUE(review.token.empty()) << "what the server echoes is not kept";
}

// Whatever is absent or wrong grants nothing.
TEST(ReviewsTest, NothingIsGrantedByAbsence) {
  for (const char* const json :
       {"{}", R"({"status":null})", R"({"status":{}})", R"({"status":{"authenticated":true}})",
        R"({"status":{"authenticated":true,"audiences":[]}})",
        R"({"status":{"authenticated":false,"audiences":["a"]}})",
        R"({"status":{"audiences":["a"]}})",
        R"({"status":{"authenticated":null,"audiences":["a"]}})"}) {
    EXPECT_FALSE(ValueOf(DecodeText<TokenReview>(json)).AuthenticatedFor("a")) << json;
  }
  for (const char* const json :
       {R"({"status":[]})", R"({"status":"x"})", R"({"status":{"authenticated":"true"}})",
        R"({"status":{"authenticated":1}})", R"({"status":{"audiences":"a"}})",
        R"({"status":{"user":"u"}})", R"({"status":{"user":{"groups":[1]}}})"}) {
    EXPECT_FALSE(DecodeText<TokenReview>(json).ok()) << json;
  }
  for (const char* const json :
       {"{}", R"({"status":{}})", R"({"status":{"allowed":false}})",
        R"({"status":{"denied":true}})", R"({"status":{"allowed":true,"denied":true}})"}) {
    EXPECT_FALSE(ValueOf(DecodeText<SubjectAccessReview>(json)).Allowed()) << json;
  }
  EXPECT_TRUE(ValueOf(DecodeText<SubjectAccessReview>(R"({"status":{"allowed":true}})")).Allowed());
  EXPECT_FALSE(DecodeText<SubjectAccessReview>(R"({"status":{"allowed":"true"}})").ok());
}

TEST(ReviewsTest, SubjectAccessReview) {
  SubjectAccessReview review;
  review.resource = {
      .name_space = "ns", .verb = "get", .group = "g", .version = "v1", .resource = "things"};
  review.user = {.username = "u", .uid = "1", .groups = {"g1", "g2"}, .extra = {{"k", {"v"}}}};
  const Object object = review.Encode();
  EXPECT_EQ(
      object.ToJson(),
      R"({"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{)"
      R"("resourceAttributes":{"namespace":"ns","verb":"get","group":"g","version":"v1",)"
      R"("resource":"things"},"user":"u","uid":"1","groups":["g1","g2"],"extra":{"k":["v"]}}})");
  const SubjectAccessReview again = ValueOf(SubjectAccessReview::Decode(object));
  EXPECT_EQ(again.user, review.user);
  EXPECT_EQ(again.resource->resource, "things");
  EXPECT_FALSE(again.Allowed());
}

TEST(ReviewsTest, ServiceAccounts) {
  const auto name = ServiceAccountOf("system:serviceaccount:ns:sa");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->name_space, "ns");
  EXPECT_EQ(name->name, "sa");
  for (const char* const other :
       {"", "admin", "system:serviceaccount:", "system:serviceaccount:ns",
        "system:serviceaccount:ns:", "system:serviceaccount::sa", "system:serviceaccount:ns:sa:x",
        "Xsystem:serviceaccount:ns:sa"}) {
    EXPECT_FALSE(ServiceAccountOf(other)) << other;
  }
}

TEST(ReviewsTest, TokenRequest) {
  const TokenRequest request = ValueOf(DecodeText<TokenRequest>(
      R"({"status":{"token":"t","expirationTimestamp":"2024-05-01T10:00:00Z"}})"));
  EXPECT_EQ(request.status->token.Reveal(), "t");
  EXPECT_EQ(FormatTime(request.status->expiration), "2024-05-01T10:00:00Z");
  EXPECT_FALSE(ValueOf(DecodeText<TokenRequest>("{}")).status);
}

TEST(SnapshotsTest, VolumeSnapshot) {
  const VolumeSnapshot snapshot = ValueOf(DecodeText<VolumeSnapshot>(R"({
      "metadata":{"name":"s","namespace":"ns","uid":"u"},
      "spec":{"source":{"persistentVolumeClaimName":"pvc"},"volumeSnapshotClassName":"c"},
      "status":{"boundVolumeSnapshotContentName":"vsc","creationTime":"2024-05-01T10:00:00Z",
                "readyToUse":true,"restoreSize":"1Gi","error":{"time":null}}})"));
  EXPECT_EQ(snapshot.meta.name, "s");
  EXPECT_THAT(snapshot.source_claim, Optional(std::string("pvc")));
  EXPECT_THAT(snapshot.class_name, Optional(std::string("c")));
  EXPECT_THAT(snapshot.status->bound_content, Optional(std::string("vsc")));
  EXPECT_THAT(snapshot.status->ready_to_use, Optional(true));
  EXPECT_THAT(snapshot.status->error, Optional(std::string()));
  EXPECT_EQ(ValueOf(VolumeSnapshot::Decode(snapshot.Encode())).source_claim, "pvc");

  const VolumeSnapshot fresh = ValueOf(DecodeText<VolumeSnapshot>(R"({"spec":{}})"));
  EXPECT_FALSE(fresh.status);
  const VolumeSnapshot empty = ValueOf(DecodeText<VolumeSnapshot>(R"({"status":{}})"));
  ASSERT_TRUE(empty.status);
  EXPECT_FALSE(empty.status->bound_content);
  EXPECT_FALSE(empty.status->ready_to_use);
}

TEST(SnapshotsTest, VolumeSnapshotContent) {
  const VolumeSnapshotContent content = ValueOf(DecodeText<VolumeSnapshotContent>(R"({
      "spec":{"volumeSnapshotRef":{"namespace":"ns","name":"s","uid":"u"},"driver":"d",
              "deletionPolicy":"Delete","source":{"volumeHandle":"v"}},
      "status":{"snapshotHandle":"h","creationTime":1714557600123456789,"restoreSize":4096,
                "readyToUse":false}})"));
  EXPECT_EQ(content.snapshot_namespace, "ns");
  EXPECT_THAT(content.source_volume_handle, Optional(std::string("v")));
  EXPECT_FALSE(content.source_snapshot_handle);
  EXPECT_THAT(content.status->creation_time, Optional(int64_t{1714557600123456789}));
  EXPECT_THAT(content.status->ready_to_use, Optional(false));
  const VolumeSnapshotContent again = ValueOf(VolumeSnapshotContent::Decode(content.Encode()));
  EXPECT_EQ(again.driver, "d");
  EXPECT_EQ(again.snapshot_uid, "u");
  EXPECT_FALSE(again.status);
  EXPECT_EQ(std::string(DecodeText<VolumeSnapshotContent>(
                            R"({"status":{"creationTime":"2024-05-01T10:00:00Z"}})")
                            .status()
                            .message()),
            "status.creationTime: expected an integer, found a string");
}

TEST(SnapshotsTest, ClassAndService) {
  const VolumeSnapshotClass one = ValueOf(DecodeText<VolumeSnapshotClass>(R"({
      "metadata":{"name":"c","annotations":
        {"snapshot.storage.kubernetes.io/is-default-class":"true"}},
      "driver":"d","deletionPolicy":"Retain","parameters":{"k":"v"}})"));
  EXPECT_TRUE(one.IsDefault());
  EXPECT_THAT(one.parameters, ElementsAre(Pair("k", "v")));
  EXPECT_FALSE(ValueOf(DecodeText<VolumeSnapshotClass>(R"({"metadata":{"annotations":
        {"snapshot.storage.kubernetes.io/is-default-class":"yes"}}})"))
                   .IsDefault());
  SnapshotMetadataService service;
  service.meta.name = "driver";
  service.audience = "a";
  service.address = "h:1";
  service.ca = "PEM";
  const Object object = service.Encode();
  EXPECT_EQ(ValueOf(object.String({"spec", "caCert"})), "UEVN");
  EXPECT_EQ(ValueOf(SnapshotMetadataService::Decode(object)).ca, "PEM");
}

TEST(CoreObjectsTest, SecretsAreDecodedAndNeverQuoted) {
  const SecretObject secret = ValueOf(
      DecodeText<SecretObject>(R"({"type":"Opaque","data":{"a":"aGk=","empty":"","n":null}})"));
  EXPECT_THAT(secret.data.Get("a"), Optional(std::string_view("hi")));
  EXPECT_THAT(secret.data.Get("empty"), Optional(std::string_view("")));
  EXPECT_EQ(secret.data.size(), 2U);
  EXPECT_EQ(ValueOf(SecretObject::Decode(secret.Encode())).data.size(), 2U);
  for (const char* const json : {R"({"data":{"a":"hunter2!"}})", R"({"data":{"a":7}})",
                                 R"({"data":"hunter2"})", R"({"data":{"a":["hunter2"]}})"}) {
    const absl::Status status = DecodeText<SecretObject>(json).status();
    EXPECT_FALSE(status.ok()) << json;
    EXPECT_THAT(status.ToString(), Not(HasSubstr("hunter2")));
    EXPECT_THAT(status.ToString(), HasSubstr("data"));
  }
}

TEST(CoreObjectsTest, LeaseKeepsOtherFields) {
  Object object = ValueOf(Object::Parse(R"({"apiVersion":"coordination.k8s.io/v1","kind":"Lease",
      "metadata":{"name":"l","namespace":"ns","resourceVersion":"3","managedFields":[{"x":1}]},
      "spec":{"holderIdentity":"me","leaseDurationSeconds":15,
              "renewTime":"2024-05-01T10:00:00.000001Z","leaseTransitions":2,"strategy":"s"}})"));
  Lease lease = ValueOf(Lease::Decode(object));
  EXPECT_EQ(lease.holder, "me");
  EXPECT_THAT(lease.duration_seconds, Optional(int64_t{15}));
  EXPECT_FALSE(lease.acquire_time);
  lease.acquire_time = lease.renew_time;
  lease.renew_time.reset();
  lease.holder.clear();
  lease.transitions = 3;
  lease.WriteTo(object);
  EXPECT_EQ(object.ToJson(),
            R"({"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l",)"
            R"("namespace":"ns","resourceVersion":"3","managedFields":[{"x":1}]},"spec":{)"
            R"("holderIdentity":"","leaseDurationSeconds":15,"leaseTransitions":3,"strategy":"s",)"
            R"("acquireTime":"2024-05-01T10:00:00.000001Z"}})");
}

TEST(CoreObjectsTest, ConfigMap) {
  ConfigMap map;
  map.meta.name = "m";
  map.meta.name_space = "ns";
  map.data = {{"k", "v"}};
  EXPECT_EQ(ValueOf(ConfigMap::Decode(map.Encode())).data, map.data);
}

}  // namespace objects_test
}  // namespace cbt::kube

#include "cbt/kube/snapshot_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/kube/client.h"
#include "cbt/kube/object.h"
#include "tests/kube/support/fake_api.h"
#include "tests/kube/watch/cache_probe.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace snapshot_metadata_test {

using std::chrono::seconds;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr char kGroup[] = "/apis/snapshot.storage.k8s.io/v1";
constexpr char kSms[] = "/apis/cbt.storage.k8s.io/v1beta1/snapshotmetadataservices/";
constexpr char kToken[] = "/api/v1/namespaces/backup/serviceaccounts/client/token";
constexpr char kReview[] = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

// The objects of one snapshot, its base and its service, each a JSON text that a test may change.
class SnapshotMetadataTest : public testing::Test {
 protected:
  SnapshotMetadataTest() {
    AddSnapshot("tuesday", "handle-2");
    AddSnapshot("monday", "handle-1");
    objects_[absl::StrCat(kSms, "driver.example.com")] =
        R"({"apiVersion":"cbt.storage.k8s.io/v1beta1","kind":"SnapshotMetadataService","metadata":{"name":"driver.example.com","resourceVersion":"1"},)"
        R"("spec":{"audience":"the-audience","address":"metadata.driver:6443","caCert":"UEVN"}})";
    objects_[kReview] =
        R"({"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview",)"
        R"("status":{"userInfo":{"username":"system:serviceaccount:backup:client"}}})";
    api_.SetPlan([this](const FakeRequest& request) { return Answer(request); });
    request_.name_space = "prod";
    request_.snapshot = "tuesday";
  }

  static std::string SnapshotPath(const std::string& name) {
    return absl::StrCat(kGroup, "/namespaces/prod/volumesnapshots/", name);
  }
  static std::string ContentPath(const std::string& name) {
    return absl::StrCat(kGroup, "/volumesnapshotcontents/content-", name);
  }
  void AddSnapshot(const std::string& name, const std::string& handle) {
    objects_[SnapshotPath(name)] = absl::StrCat(
        R"({"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot","metadata":{"name":")",
        name, R"(","namespace":"prod","uid":"uid-)", name,
        R"(","resourceVersion":"1"},"spec":{"source":{"persistentVolumeClaimName":"pvc"}},)",
        R"("status":{"boundVolumeSnapshotContentName":"content-)", name,
        R"(","readyToUse":true}})");
    objects_[ContentPath(name)] = absl::StrCat(
        R"({"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshotContent","metadata":{"name":"content-)",
        name,
        R"(","resourceVersion":"1"},"spec":{"driver":"driver.example.com","deletionPolicy":"Delete",)",
        R"("source":{"volumeHandle":"volume"},"volumeSnapshotRef":{"namespace":"prod","name":")",
        name, R"(","uid":"uid-)", name, R"("}},"status":{"snapshotHandle":")", handle,
        R"(","readyToUse":true}})");
  }
  void Change(const std::string& path, const std::function<void(kube::Object&)>& change) {
    std::lock_guard lock(mutex_);
    kube::Object object = ValueOf(kube::Object::Parse(objects_.at(path)));
    change(object);
    objects_[path] = object.ToJson();
  }

  absl::StatusOr<rpc::ListRequest> Resolve() {
    return kube::ResolveSnapshotMetadata(client_, request_);
  }
  std::string ErrorText() { return Resolve().status().ToString(); }
  std::vector<std::string> Paths() const {
    std::vector<std::string> paths;
    for (const FakeRequest& request : api_.requests()) paths.push_back(request.path);
    return paths;
  }

  FakePlan Answer(const FakeRequest& request) {
    std::lock_guard lock(mutex_);
    if (request.path == kToken) {
      bodies_.push_back(request.body);
      const auto expires = std::chrono::floor<std::chrono::microseconds>(
          std::chrono::system_clock::now() + token_life_);
      return {
          .code = 201,
          .body = absl::StrCat(
              R"({"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{},"spec":{"audiences":["the-audience"]},"status":{"token":"token-)",
              bodies_.size(), R"(","expirationTimestamp":")", kube::FormatTime(expires), "\"}}")};
    }
    const auto at = objects_.find(request.path);
    if (at != objects_.end()) {
      return {.code = request.method == "POST" ? 201 : 200, .body = at->second};
    }
    return {
        .code = 404,
        .body =
            R"({"kind":"Status","apiVersion":"v1","status":"Failure","message":"not there","reason":"NotFound","code":404})"};
  }

  std::mutex mutex_;
  std::map<std::string, std::string> objects_;
  std::vector<std::string> bodies_;  // of requests for tokens
  seconds token_life_{600};
  FakeApi api_;
  std::shared_ptr<kube::Client> client_ = ClientOf(api_.url());
  kube::SnapshotMetadataRequest request_;
};

TEST_F(SnapshotMetadataTest, FindsEverything) {
  request_.stream.starting_offset = 4096;
  request_.stream.max_results = 17;
  ASSERT_OK_AND_ASSIGN(const rpc::ListRequest stream, Resolve());
  EXPECT_EQ(stream.api, rpc::Api::kKubernetes);
  EXPECT_EQ(stream.address, "metadata.driver:6443");
  EXPECT_EQ(stream.name_space, "prod");
  EXPECT_EQ(stream.snapshot_id, "tuesday");
  EXPECT_FALSE(stream.base_snapshot_id.has_value());
  EXPECT_EQ(stream.token.Reveal(), "token-1");
  EXPECT_TRUE(stream.tls.enabled);
  EXPECT_EQ(stream.tls.ca, "PEM");
  EXPECT_EQ(stream.starting_offset, 4096U);
  EXPECT_EQ(stream.max_results, 17);
  ASSERT_EQ(bodies_.size(), 1U);
  EXPECT_THAT(bodies_[0], HasSubstr(R"("audiences":["the-audience"])"));
  EXPECT_THAT(bodies_[0], HasSubstr(R"("expirationSeconds":600)"));
}

// For an answer without a message, which names no capacity.
TEST_F(SnapshotMetadataTest, FATheSizeOfTheSnapshotIsTheCapacityIfItIsKnown) {
  const auto capacity = [this] { return ValueOf(Resolve()).capacity; };
  EXPECT_EQ(capacity(), std::nullopt);
  for (const int64_t size : {0, 8192}) {
    Change(ContentPath("tuesday"), [size](kube::Object& object) {
      object.SetInt({"status", "restoreSize"}, size);
    });
    EXPECT_EQ(capacity(), size > 0 ? std::optional<uint64_t>(size) : std::nullopt);
  }
  request_.stream.capacity = 4096;
  EXPECT_EQ(capacity(), 4096U);
}

TEST_F(SnapshotMetadataTest, AGivenAccountAndDriverAreNotAskedFor) {
  request_.service_account = {.name_space = "backup", .name = "client"};
  request_.driver = "driver.example.com";
  request_.token_lifetime = seconds(900);
  ASSERT_OK(Resolve());
  EXPECT_THAT(Paths(), Not(Contains(std::string(kReview))));
  EXPECT_THAT(Paths(), Not(Contains(SnapshotPath("tuesday"))));
  EXPECT_THAT(bodies_.at(0), HasSubstr(R"("expirationSeconds":900)"));
}

TEST_F(SnapshotMetadataTest, ABaseByNameOrByHandle) {
  request_.base = "monday";
  EXPECT_EQ(ValueOf(Resolve()).base_snapshot_id, "handle-1");
  request_.base.reset();
  request_.base_handle = "any handle";
  EXPECT_EQ(ValueOf(Resolve()).base_snapshot_id, "any handle");
}

TEST_F(SnapshotMetadataTest, TheBindingIsCheckedInBothDirections) {
  request_.base = "monday";
  for (const std::string name : {"tuesday", "monday"}) {
    for (const char* field : {"namespace", "name", "uid"}) {
      SCOPED_TRACE(name + " " + field);
      const std::string before = objects_.at(ContentPath(name));
      Change(ContentPath(name), [&](kube::Object& content) {
        content.SetString({"spec", "volumeSnapshotRef", field}, "another");
      });
      EXPECT_EQ(Resolve().status().code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(ErrorText(), HasSubstr("does not belong to VolumeSnapshot"));
      objects_[ContentPath(name)] = before;
    }
    // One that existed before its snapshot has no uid until it is bound: it belongs to none.
    const std::string before = objects_.at(ContentPath(name));
    for (const bool empty : {false, true}) {
      Change(ContentPath(name), [&](kube::Object& content) {
        content.Remove({"spec", "volumeSnapshotRef", "uid"});
        if (empty) content.SetString({"spec", "volumeSnapshotRef", "uid"}, "");
      });
      EXPECT_TRUE(absl::IsUnavailable(Resolve().status())) << ErrorText();
      EXPECT_THAT(ErrorText(), HasSubstr("is not bound"));
    }
    objects_[ContentPath(name)] = before;
  }
  EXPECT_TRUE(bodies_.empty()) << "a token was made for what was refused";
}

TEST_F(SnapshotMetadataTest, WhatIsNotReadyIsUnavailable) {
  request_.base = "monday";
  const std::map<std::string, std::string> objects = objects_;
  const auto expect_unavailable = [&](const std::string& path,
                                      const std::function<void(kube::Object&)>& change) {
    Change(path, change);
    EXPECT_TRUE(absl::IsUnavailable(Resolve().status())) << path << ": " << ErrorText();
    objects_ = objects;
  };
  for (const std::string name : {"tuesday", "monday"}) {
    expect_unavailable(SnapshotPath(name), [](auto& o) { o.Remove({"status"}); });
    expect_unavailable(SnapshotPath(name), [](auto& o) {
      o.Remove({"status", "boundVolumeSnapshotContentName"});
    });
    for (const std::string& path : {SnapshotPath(name), ContentPath(name)}) {
      expect_unavailable(path, [](auto& o) { o.Remove({"status", "readyToUse"}); });
      expect_unavailable(path, [](auto& o) { o.SetBool({"status", "readyToUse"}, false); });
    }
    expect_unavailable(ContentPath(name), [](auto& o) { o.Remove({"status"}); });
    expect_unavailable(ContentPath(name), [](auto& o) { o.Remove({"status", "snapshotHandle"}); });
  }
  EXPECT_OK(Resolve());
}

TEST_F(SnapshotMetadataTest, WhatIsMissingIsNamed) {
  const std::map<std::string, std::string> objects = objects_;
  request_.base = "monday";
  for (const auto& [path, name] : std::map<std::string, std::string>{
           {SnapshotPath("tuesday"), "VolumeSnapshot prod/tuesday"},
           {ContentPath("tuesday"), "content content-tuesday"},
           {SnapshotPath("monday"), "base: VolumeSnapshot prod/monday"},
           {absl::StrCat(kSms, "driver.example.com"),
            "metadata service of driver driver.example.com"},
           {kReview, "own account"}}) {
    SCOPED_TRACE(path);
    objects_.erase(path);
    EXPECT_TRUE(absl::IsNotFound(Resolve().status())) << ErrorText();
    EXPECT_THAT(ErrorText(), HasSubstr(name));
    objects_ = objects;
  }
}

TEST_F(SnapshotMetadataTest, RefusesWhatDoesNotFit) {
  const std::map<std::string, std::string> objects = objects_;
  constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
  Change(kReview, [](auto& o) { o.SetString({"status", "userInfo", "username"}, "alice"); });
  EXPECT_EQ(Resolve().status().code(), kPrecondition);
  EXPECT_THAT(ErrorText(), HasSubstr("alice"));
  objects_ = objects;
  // Without a CA the system's authorities would be trusted.
  for (const char* field : {"caCert", "address", "audience"}) {
    Change(absl::StrCat(kSms, "driver.example.com"), [&](auto& o) {
      o.SetString({"spec", field}, "");
    });
    EXPECT_FALSE(Resolve().ok()) << field;
    objects_ = objects;
  }
  request_.base = "monday";
  Change(ContentPath("monday"), [](auto& o) {
    o.SetString({"spec", "driver"}, "other.example.com");
  });
  EXPECT_EQ(Resolve().status().code(), kPrecondition);
  EXPECT_TRUE(bodies_.empty());
}

TEST_F(SnapshotMetadataTest, IncompleteRequests) {
  const auto code = [&](const std::function<void(kube::SnapshotMetadataRequest&)>& change) {
    kube::SnapshotMetadataRequest request;
    request.name_space = request_.name_space;
    request.snapshot = request_.snapshot;
    request.base = request_.base;
    request.service_account = request_.service_account;
    change(request);
    return kube::ResolveSnapshotMetadata(client_, request).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](auto& r) { r.name_space = ""; }), kInvalid);
  EXPECT_EQ(code([](auto& r) { r.snapshot = ""; }), kInvalid);
  EXPECT_EQ(code([](auto& r) { r.snapshot = "../secrets/x"; }), kInvalid);
  EXPECT_EQ(code([](auto& r) { r.base = ""; }), kInvalid);
  EXPECT_EQ(code([](auto& r) { r.base_handle = ""; }), kInvalid);
  EXPECT_EQ(code([](auto& r) { r.base = r.base_handle = "x"; }), kInvalid);
  EXPECT_EQ(code([](auto& r) { r.token_lifetime = seconds(599); }), kInvalid);
  EXPECT_EQ(code([](auto& r) { r.service_account.emplace(); }), kInvalid);
}

TEST_F(SnapshotMetadataTest, ATokenIsReplacedBeforeItExpires) {
  ASSERT_OK_AND_ASSIGN(const rpc::ListRequest lasting, Resolve());
  EXPECT_EQ(ValueOf(lasting.token_source()).Reveal(), "token-1");
  EXPECT_EQ(ValueOf(lasting.token_source()).Reveal(), "token-1");
  // The server gives less than was asked for: none of it is left.
  token_life_ = seconds(0);
  ASSERT_OK_AND_ASSIGN(const rpc::ListRequest brief, Resolve());
  EXPECT_EQ(brief.token.Reveal(), "token-2");
  EXPECT_EQ(ValueOf(brief.token_source()).Reveal(), "token-3");
  // The client lives as long as somebody may want a token.
  client_.reset();
  EXPECT_EQ(ValueOf(brief.token_source()).Reveal(), "token-4");
}

}  // namespace snapshot_metadata_test
}  // namespace cbt::test

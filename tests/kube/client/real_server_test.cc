// The client against a real kube-apiserver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cbt/kube/client.h"
#include "cbt/kube/status.h"
#include "cbt/kube/typed_objects.h"
#include "tests/kube/support/control_plane.h"
#include "tests/support/status.h"

namespace cbt::kube {
namespace real_server_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::ControlPlane;
using test::ValueOf;
using testing::Contains;
using testing::HasSubstr;

class RealServerTest : public testing::Test {
 protected:
  void SetUp() override {
    CBT_NEED_CONTROL_PLANE();
    ClientOptions options;
    options.qps = 0;
    client_ =
        ValueOf(Client::Create(ValueOf(LoadDefaultConfig(plane().admin_kubeconfig())), options));
    plane().CreateNamespace(kSpace);
  }
  static ControlPlane& plane() { return ControlPlane::Shared(); }

  // A client with a token.
  static std::unique_ptr<Client> WithToken(const std::string& token) {
    Config config;
    config.server = plane().url();
    config.ca = plane().ca();
    config.token = Secret(token);
    return ValueOf(Client::Create(std::move(config)));
  }

  static constexpr char kSpace[] = "client-test";
  std::unique_ptr<Client> client_;
};

TEST_F(RealServerTest, AConfigMapFromCreationToDeletion) {
  ConfigMap map;
  map.meta.name_space = kSpace;
  map.meta.generate_name = "life-";
  map.data = {{"key", "one"}};
  const ConfigMap made = ValueOf(client_->Create(map));
  const std::string name = made.meta.name;
  EXPECT_THAT(name, testing::StartsWith("life-"));
  EXPECT_FALSE(made.meta.uid.empty());

  Object object = ValueOf(client_->Get(kConfigMaps, kSpace, name));
  EXPECT_EQ(object.uid(), made.meta.uid);
  const Object stale = object;
  object.SetString({"data", "key"}, "two");
  object = ValueOf(client_->Update(kConfigMaps, object));
  EXPECT_EQ(ValueOf(object.String({"data", "key"})), "two");
  const absl::Status conflict = client_->Update(kConfigMaps, stale).status();
  EXPECT_TRUE(IsConflict(conflict)) << conflict;
  EXPECT_EQ(ReasonOf(conflict), "Conflict");

  object = ValueOf(client_->Patch(kConfigMaps, kSpace, name, PatchType::kMerge,
                                  R"({"data":{"key":null,"merged":"3"}})"));
  EXPECT_FALSE(object.Has({"data", "key"}));
  object = ValueOf(client_->Patch(kConfigMaps, kSpace, name, PatchType::kJson,
                                  R"([{"op":"replace","path":"/data/merged","value":"4"}])"));
  EXPECT_EQ(ValueOf(object.String({"data", "merged"})), "4");
  object = ValueOf(client_->Patch(kConfigMaps, kSpace, name, PatchType::kStrategic,
                                  R"({"data":{"strategic":"5"}})"));
  EXPECT_EQ(ValueOf(object.String({"data", "strategic"})), "5");

  ConfigMap again;
  again.meta.name_space = kSpace;
  again.meta.name = name;
  EXPECT_EQ(client_->Create(again).status().code(), absl::StatusCode::kAlreadyExists);

  DeleteOptions wrong;
  wrong.uid = "00000000-0000-0000-0000-000000000000";
  EXPECT_EQ(client_->Delete(kConfigMaps, kSpace, name, wrong).code(), absl::StatusCode::kAborted);
  DeleteOptions right;
  right.uid = made.meta.uid;
  right.resource_version = std::string(object.resource_version());
  EXPECT_OK(client_->Delete(kConfigMaps, kSpace, name, right));
  const absl::Status gone = client_->Get(kConfigMaps, kSpace, name).status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(gone), "NotFound");
  EXPECT_EQ(HttpCodeOf(gone), 404);
}

TEST_F(RealServerTest, ApplyAndItsConflicts) {
  Object object("", "", kSpace, "applied");
  object.SetString({"data", "key"}, "one");
  ApplyOptions first;
  first.field_manager = "first";
  EXPECT_OK(client_->Apply(kConfigMaps, object, first));
  object.SetString({"data", "key"}, "two");
  ApplyOptions second;
  second.field_manager = "second";
  EXPECT_EQ(client_->Apply(kConfigMaps, object, second).status().code(),
            absl::StatusCode::kAborted);
  second.force = true;
  const Object applied = ValueOf(client_->Apply(kConfigMaps, object, second));
  EXPECT_EQ(ValueOf(applied.String({"data", "key"})), "two");
  // What came back can be applied again.
  EXPECT_OK(client_->Apply(kConfigMaps, applied, second));
  WriteOptions strict;
  strict.strict_fields = true;
  strict.dry_run = true;
  Object unknown("v1", "ConfigMap", kSpace, "unknown");
  unknown.SetString({"spek"}, "x");
  EXPECT_EQ(client_->Create(kConfigMaps, unknown, strict).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RealServerTest, Pages) {
  for (int i = 0; i < 12; ++i) {
    ConfigMap map;
    map.meta.name_space = kSpace;
    map.meta.name = absl::StrCat("page-", i);
    map.meta.labels = {{"of", "pages"}};
    ASSERT_OK(client_->Create(map));
  }
  ListOptions options;
  options.limit = 5;
  options.label_selector = "of=pages";
  const ObjectList page = ValueOf(client_->List(kConfigMaps, kSpace, options));
  EXPECT_EQ(page.items.size(), 5U);
  EXPECT_FALSE(page.continue_token.empty());
  EXPECT_EQ(page.items[0].kind(), "ConfigMap");
  const uint64_t before = client_->counters().requests;
  const ObjectList all = ValueOf(client_->ListAll(kConfigMaps, kSpace, options));
  EXPECT_EQ(all.items.size(), 12U);
  EXPECT_EQ(client_->counters().requests - before, 3U);
  EXPECT_FALSE(all.resource_version.empty());
  EXPECT_EQ(ValueOf(client_->ListAll(kConfigMaps, "", options)).items.size(), 12U);
  options.continue_token = "nonsense";
  EXPECT_EQ(client_->List(kConfigMaps, kSpace, options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RealServerTest, OneConnectionForManyCalls) {
  const uint64_t before = client_->counters().connections;
  std::vector<std::promise<absl::Status>> results(100);
  for (auto& result : results) {
    client_->GetAsync(kNamespaces, "", kSpace, {},
                      [&](absl::StatusOr<Object> object) { result.set_value(object.status()); });
  }
  for (auto& result : results) EXPECT_OK(result.get_future().get());
  EXPECT_LE(client_->counters().connections - before, 1U) << "HTTP/2";
}

TEST_F(RealServerTest, TokensAndReviews) {
  plane().CreateServiceAccount(kSpace, "reader");
  TokenOptions options;
  options.audiences = {"backup"};
  options.lifetime = seconds(600);
  const ServiceAccountToken token = ValueOf(client_->CreateToken(kSpace, "reader", options));
  EXPECT_GT(token.expires, std::chrono::system_clock::now() + seconds(500));

  const auto review = [&](std::string_view text, std::vector<std::string> audiences) {
    TokenReview question;
    question.token = Secret(text);
    question.audiences = std::move(audiences);
    return ValueOf(client_->Create(question));
  };
  const TokenReview right = review(token.token.Reveal(), {"backup"});
  EXPECT_TRUE(right.AuthenticatedFor("backup"));
  EXPECT_EQ(right.status->user.username, absl::StrCat("system:serviceaccount:", kSpace, ":reader"));
  EXPECT_THAT(right.status->user.groups, Contains("system:serviceaccounts"));
  EXPECT_FALSE(review(token.token.Reveal(), {"other"}).AuthenticatedFor("other"));
  const TokenReview nonsense = review("nonsense", {"backup"});
  ASSERT_TRUE(nonsense.status);
  EXPECT_FALSE(nonsense.status->authenticated);

  const auto may = [&](const UserInfo& user, const std::string& name_space) {
    SubjectAccessReview question;
    question.resource = {.name_space = name_space,
                         .verb = "get",
                         .group = "",
                         .version = "v1",
                         .resource = "configmaps"};
    question.user = user;
    return ValueOf(client_->Create(question)).Allowed();
  };
  EXPECT_FALSE(may(right.status->user, kSpace));
  plane().Allow("reads-config-maps", kSpace, "reader",
                R"([{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}])", kSpace);
  bool allowed = false;
  for (int i = 0; i < 100 && !allowed; ++i) {
    allowed = may(right.status->user, kSpace);
    if (!allowed) std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_TRUE(allowed);
  EXPECT_FALSE(may(right.status->user, "default"));

  const auto reader = WithToken(plane().Token(kSpace, "reader"));
  const SelfSubjectReview self = ValueOf(reader->Create(SelfSubjectReview()));
  ASSERT_TRUE(self.user);
  EXPECT_EQ(ServiceAccountOf(self.user->username)->name, "reader");
  const absl::Status forbidden = reader->Get(kSecrets, kSpace, "a").status();
  EXPECT_EQ(forbidden.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ReasonOf(forbidden), "Forbidden");
  EXPECT_EQ(WithToken("nonsense")->Get(kSecrets, kSpace, "a").status().code(),
            absl::StatusCode::kUnauthenticated);
}

TEST_F(RealServerTest, SecretsAndLeases) {
  SecretObject secret;
  secret.meta.name_space = kSpace;
  secret.meta.name = "keys";
  secret.type = "Opaque";
  secret.data.Set("user", "root");
  secret.data.Set("binary", std::string_view("\0\xff", 2));
  ASSERT_OK(client_->Create(secret));
  const SecretObject read = ValueOf(client_->Get<SecretObject>(kSpace, "keys"));
  EXPECT_EQ(read.data.Get("user"), "root");
  EXPECT_EQ(read.data.Get("binary"), std::string_view("\0\xff", 2));

  Lease lease;
  lease.meta.name_space = kSpace;
  lease.meta.name = "leader";
  lease.holder = "me";
  lease.duration_seconds = 15;
  lease.renew_time =
      std::chrono::floor<std::chrono::microseconds>(std::chrono::system_clock::now());
  const Lease made = ValueOf(client_->Create(lease));
  EXPECT_EQ(made.renew_time, lease.renew_time) << "to the microsecond";
}

TEST_F(RealServerTest, SnapshotsAndTheirStatus) {
  CBT_NEED_SNAPSHOT_CRDS();
  plane().InstallSnapshotCrds();
  VolumeSnapshot snapshot;
  snapshot.meta.name_space = kSpace;
  snapshot.meta.name = "nightly";
  snapshot.source_claim = "data";
  const VolumeSnapshot made = ValueOf(client_->Create(snapshot));
  EXPECT_FALSE(made.status) << "no controller has seen it";
  WriteOptions status;
  status.subresource = "status";
  const Object object = ValueOf(client_->Patch(
      kVolumeSnapshots, kSpace, "nightly", PatchType::kMerge,
      R"({"status":{"readyToUse":true,"boundVolumeSnapshotContentName":"c"}})", status));
  const VolumeSnapshot ready = ValueOf(VolumeSnapshot::Decode(object));
  ASSERT_TRUE(ready.status);
  EXPECT_EQ(ready.status->bound_content, "c");
  EXPECT_EQ(ready.status->ready_to_use, true);
}

TEST_F(RealServerTest, AStreamOfChanges) {
  const ObjectList list = ValueOf(client_->List(kConfigMaps, kSpace));
  std::promise<std::string> line;
  std::promise<absl::Status> end;
  Request request;
  request.path = ValueOf(ResourcePath(kConfigMaps, kSpace));
  request.query = {
      {"watch", "1"}, {"resourceVersion", list.resource_version}, {"timeoutSeconds", "2"}};
  int lines = 0;
  client_->StreamAsync(
      request, {}, {},
      [&](std::string_view text) {
        if (++lines == 1) line.set_value(std::string(text));
        return absl::OkStatus();
      },
      [&](absl::Status status) { end.set_value(std::move(status)); });
  ConfigMap map;
  map.meta.name_space = kSpace;
  map.meta.name = "watched";
  ASSERT_OK(client_->Create(map));
  EXPECT_THAT(line.get_future().get(), HasSubstr("\"watched\""));
  EXPECT_OK(end.get_future().get()) << "the server ends it when its time is over";
}

TEST_F(RealServerTest, SurvivesARestartOfTheServer) {
  ControlPlane own;
  const auto client = ValueOf(Client::Create(ValueOf(LoadDefaultConfig(own.admin_kubeconfig()))));
  ASSERT_OK(client->Get(kNamespaces, "", "default"));
  own.StopApiServer(SIGKILL);
  const absl::Status down =
      client->Get(kNamespaces, "", "default", {.timeout = milliseconds(500)}).status();
  EXPECT_TRUE(absl::IsUnavailable(down) || absl::IsDeadlineExceeded(down)) << down;
  std::promise<absl::Status> waits;
  client->GetAsync(kNamespaces, "", "default", {.timeout = seconds(120)},
                   [&](absl::StatusOr<Object> object) { waits.set_value(object.status()); });
  own.StartApiServer();
  const absl::Status status = waits.get_future().get();
  // The last of its repetitions may have come before the server.
  EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
  EXPECT_OK(client->Get(kNamespaces, "", "default"));
}

}  // namespace real_server_test
}  // namespace cbt::kube

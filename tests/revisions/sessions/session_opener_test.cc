// Every step of a session at which its manager may stop, or the API server may fail: in the end
// there is one session, and one only.
#include "programs/revisions/sessions/session_opener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/kube/client.h"
#include "cbt/kube/object.h"
#include "ops/event_log.h"
#include "programs/cluster/session_objects.h"
#include "programs/revisions/sessions/counters.h"
#include "tests/kube/support/fake_api.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace {

using kube::Object;
using kube::cluster::SnapshotSessionData;
using kube::cluster::SnapshotSessionRequest;
using kube::sessions::Counters;
using kube::sessions::SessionOpener;
using testing::HasSubstr;
using testing::SizeIs;

constexpr char kSnapshots[] = "/apis/snapshot.storage.k8s.io/v1";
constexpr char kRequest[] =
    "/apis/cbt.storage.k8s.io/v1alpha1/namespaces/prod/snapshotsessionrequests/nightly";
constexpr char kData[] =
    "/apis/cbt.storage.k8s.io/v1alpha1/namespaces/csi-driver/snapshotsessiondata";
constexpr char kConfigurations[] =
    "/apis/cbt.storage.k8s.io/v1alpha1/snapshotservicesconfigurations";

std::string Failure(int code, const char* reason) {
  return absl::StrCat(R"({"kind":"Status","apiVersion":"v1","status":"Failure","message":"m",)",
                      R"("reason":")", reason, R"(","code":)", code, "}");
}

class Log final : public rpc::LogSink {
 public:
  bool Wants(rpc::LogLevel) const noexcept override { return true; }
  void Write(rpc::LogLevel, std::string_view event,
             std::span<const rpc::LogField> fields) noexcept override {
    const std::lock_guard lock(mutex_);
    text_ += event;
    for (const rpc::LogField& field : fields) text_ += " " + field.value;
    text_ += "\n";
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

// The objects of one request, by their paths, with optimistic locks as a real server has them.
class SessionOpenerTest : public testing::Test {
 protected:
  SessionOpenerTest() {
    Put(kRequest, R"({"apiVersion":"cbt.storage.k8s.io/v1alpha1","kind":"SnapshotSessionRequest",)"
                  R"("metadata":{"name":"nightly","namespace":"prod","uid":"uid-r"},)"
                  R"("spec":{"snapshots":["monday","tuesday"]}})");
    AddSnapshot("monday", "a.example.com");
    AddSnapshot("tuesday", "a.example.com");
    AddConfiguration("a", "a.example.com");
    api_.SetPlan([this](const FakeRequest& request) { return Answer(request); });
    kube::Config config;
    config.server = api_.url();
    client_ = ValueOf(kube::Client::Create(std::move(config), {.max_retries = 0}));
  }

  void Put(const std::string& path, const std::string& json) {
    const std::lock_guard lock(mutex_);
    Object object = ValueOf(Object::Parse(json));
    object.SetString({"metadata", "resourceVersion"}, absl::StrCat(++version_));
    objects_[path] = object.ToJson();
  }
  void Change(const std::string& path, const std::function<void(Object&)>& change) {
    Object object = ValueOf(Object::Parse(Find(path)));
    change(object);
    Put(path, object.ToJson());
  }
  std::string Find(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(path);
    return found == objects_.end() ? "" : found->second;
  }
  void Remove(const std::string& path) {
    const std::lock_guard lock(mutex_);
    objects_.erase(path);
  }
  std::vector<std::string> Below(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> found;
    for (const auto& [at, json] : objects_) {
      if (at.starts_with(path + "/")) found.push_back(json);
    }
    return found;
  }

  void AddSnapshot(const std::string& name, const std::string& driver) {
    Put(absl::StrCat(kSnapshots, "/namespaces/prod/volumesnapshots/", name),
        absl::StrCat(R"({"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshot",)",
                     R"("metadata":{"name":")", name, R"(","namespace":"prod","uid":"uid-)", name,
                     R"("},"spec":{"source":{"persistentVolumeClaimName":"c"}},)",
                     R"("status":{"boundVolumeSnapshotContentName":"content-)", name, R"("}})"));
    Put(absl::StrCat(kSnapshots, "/volumesnapshotcontents/content-", name),
        absl::StrCat(
            R"({"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshotContent",)",
            R"("metadata":{"name":"content-)", name, R"("},"spec":{"driver":")", driver,
            R"(","deletionPolicy":"Delete","source":{"volumeHandle":"v"},)",
            R"("volumeSnapshotRef":{"namespace":"prod","name":")", name, R"(","uid":"uid-)", name,
            R"("}}})"));
  }
  void AddConfiguration(const std::string& name, const std::string& driver) {
    Put(absl::StrCat(kConfigurations, "/", name),
        absl::StrCat(R"({"apiVersion":"cbt.storage.k8s.io/v1alpha1",)",
                     R"("kind":"SnapshotServicesConfiguration","metadata":{"name":")", name,
                     R"(","labels":{"cbt.storage.k8s.io/driver":")", driver,
                     R"("}},"spec":{"address":"service.csi-driver:6443","caCert":"UEVN",)",
                     R"("driverNamespace":"csi-driver"}})"));
  }

  FakePlan Answer(const FakeRequest& request) {
    const int number = ++asked_;
    if (before_ && before_(number)) return {.code = 500, .body = Failure(500, "InternalError")};
    FakePlan plan = Serve(request);
    // Done, but no client learns of it.
    if (after_ && after_(number)) return {.code = 500, .body = Failure(500, "InternalError")};
    return plan;
  }

  FakePlan Serve(const FakeRequest& request) {
    if (request.method == "POST") return Create(request);
    if (request.method == "PUT") return Update(request);
    const bool list = request.path == kData || request.path == kConfigurations;
    if (list) return List(request);
    const std::string found = Find(request.path);
    if (found.empty()) return {.code = 404, .body = Failure(404, "NotFound")};
    return {.body = found};
  }
  FakePlan List(const FakeRequest& request) {
    const std::string& selector = request.query.at("labelSelector");
    const size_t equal = selector.find('=');
    std::string items;
    for (const std::string& json : Below(request.path)) {
      const Object object = ValueOf(Object::Parse(json));
      if (object.label(selector.substr(0, equal)) != selector.substr(equal + 1)) continue;
      absl::StrAppend(&items, items.empty() ? "" : ",", json);
    }
    const char* const kind =
        request.path == kData ? "SnapshotSessionData" : "SnapshotServicesConfiguration";
    return {.body =
                absl::StrCat(R"({"apiVersion":"cbt.storage.k8s.io/v1alpha1","kind":")", kind,
                             R"(List","metadata":{"resourceVersion":"1"},"items":[)", items, "]}")};
  }
  FakePlan Create(const FakeRequest& request) {
    const Object object = ValueOf(Object::Parse(request.body));
    const std::string path = absl::StrCat(request.path, "/", std::string(object.name()));
    if (!Find(path).empty()) return {.code = 409, .body = Failure(409, "AlreadyExists")};
    Put(path, request.body);
    return {.code = 201, .body = Find(path)};
  }
  FakePlan Update(const FakeRequest& request) {
    const std::string path = request.path.substr(0, request.path.rfind("/status"));
    const std::string found = Find(path);
    if (found.empty()) return {.code = 404, .body = Failure(404, "NotFound")};
    Object stored = ValueOf(Object::Parse(found));
    const Object sent = ValueOf(Object::Parse(request.body));
    if (stored.resource_version() != sent.resource_version()) {
      return {.code = 409, .body = Failure(409, "Conflict")};
    }
    stored.SetChild({"status"}, ValueOf(sent.Child({"status"})));
    Put(path, stored.ToJson());
    return {.body = Find(path)};
  }

  absl::Status Open(const std::function<bool()>& may_act = [] { return true; }) {
    SessionOpener opener(*client_, std::chrono::seconds(3600), may_act, counters_, log_);
    return opener.Open("prod/nightly");
  }
  SnapshotSessionRequest Request() {
    return ValueOf(SnapshotSessionRequest::Decode(ValueOf(Object::Parse(Find(kRequest)))));
  }
  std::vector<SnapshotSessionData> Data() {
    std::vector<SnapshotSessionData> all;
    for (const std::string& json : Below(kData)) {
      all.push_back(ValueOf(SnapshotSessionData::Decode(ValueOf(Object::Parse(json)))));
    }
    return all;
  }
  void ExpectOneSession(const std::string& what) {
    const SnapshotSessionRequest request = Request();
    EXPECT_EQ(request.status.state, "Ready") << what;
    const std::vector<SnapshotSessionData> data = Data();
    ASSERT_THAT(data, SizeIs(1)) << what;
    EXPECT_EQ(request.status.token, data[0].meta.name) << what;
    EXPECT_EQ(*request.status.expires, data[0].expires) << what;
    EXPECT_EQ(request.status.url, "service.csi-driver:6443") << what;
    EXPECT_EQ(request.status.ca, "PEM") << what;
    EXPECT_EQ(data[0].snapshot_namespace, "prod") << what;
    EXPECT_THAT(data[0].snapshots, testing::ElementsAre("monday", "tuesday")) << what;
    EXPECT_THAT(data[0].meta.name, testing::MatchesRegex("[0-9a-f]{64}")) << what;
    EXPECT_THAT(sink_.text(), testing::Not(HasSubstr(request.status.token))) << what;
  }
  void ExpectFailed(const std::string& why) {
    EXPECT_OK(Open());
    EXPECT_EQ(Request().status.state, "Failed");
    EXPECT_THAT(Request().status.error, HasSubstr(why));
    EXPECT_EQ(Request().status.token, "");
    EXPECT_TRUE(Request().status.expires.has_value());
    EXPECT_THAT(Data(), SizeIs(0));
    // For good.
    AddConfiguration("late", "a.example.com");
    AddSnapshot("monday", "a.example.com");
    EXPECT_OK(Open());
    EXPECT_EQ(Request().status.state, "Failed");
  }

  FakeApi api_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> objects_;
  int version_ = 0;
  std::atomic<int> asked_ = 0;
  std::function<bool(int number)> before_;
  std::function<bool(int number)> after_;
  std::unique_ptr<kube::Client> client_;
  ops::MetricSet metrics_;
  Counters counters_{metrics_};
  Log sink_;
  ops::EventLog log_{&sink_};
};

TEST_F(SessionOpenerTest, S14ARequestBecomesASession) {
  EXPECT_OK(Open());
  ExpectOneSession("");
  EXPECT_EQ(counters_.sessions_ready, 1u);
  // A session that is Ready stays as it is.
  const std::string before = Find(kRequest);
  EXPECT_OK(Open());
  EXPECT_EQ(Find(kRequest), before);
}

// The states that a user can see, one after the other.
TEST_F(SessionOpenerTest, S14DataIsThereBeforeTheRequestNamesIt) {
  std::vector<std::string> states;
  after_ = [&](int) {
    const SnapshotSessionRequest request = Request();
    if (states.empty() || states.back() != request.status.state) {
      states.push_back(request.status.state);
    }
    EXPECT_EQ(request.status.token.empty(), request.status.state != "Ready");
    if (request.status.state == "Ready") {
      EXPECT_THAT(Data(), SizeIs(1));
    }
    return false;
  };
  EXPECT_OK(Open());
  EXPECT_THAT(states, testing::ElementsAre("", "Pending", "Ready"));
}

TEST_F(SessionOpenerTest, S10TheTimeOfExpiryIsSetOnce) {
  const auto begin = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  // Ends after the first write.
  int asked = 0;
  EXPECT_FALSE(Open([&] { return ++asked <= 2; }).ok());
  const SnapshotSessionRequest pending = Request();
  EXPECT_EQ(pending.status.state, "Pending");
  EXPECT_GE(*pending.status.expires, begin + std::chrono::hours(1));
  EXPECT_LE(*pending.status.expires, begin + std::chrono::hours(1) + std::chrono::minutes(1));
  Change(kRequest, [&](Object& object) {
    object.SetString({"status", "expiryTime"}, "2099-01-01T00:00:00Z");
  });
  EXPECT_OK(Open());
  EXPECT_EQ(Request().status.expires, ValueOf(kube::ParseTime("2099-01-01T00:00:00Z")));
  ExpectOneSession("");
}

// S11: whatever happens on the way, the next try goes on where the last one stopped.
TEST_F(SessionOpenerTest, S11AStopAtAnyStepLosesAndDoublesNothing) {
  EXPECT_OK(Open());
  const int steps = asked_;
  ASSERT_EQ(steps, 9);
  const std::string request = R"({"apiVersion":"cbt.storage.k8s.io/v1alpha1",)"
                              R"("kind":"SnapshotSessionRequest","metadata":{"name":"nightly",)"
                              R"("namespace":"prod","uid":"uid-r"},)"
                              R"("spec":{"snapshots":["monday","tuesday"]}})";
  const auto again = [&] {
    before_ = after_ = {};
    for (const SnapshotSessionData& data : Data()) Remove(absl::StrCat(kData, "/", data.meta.name));
    Put(kRequest, request);
    asked_ = 0;
  };
  for (int step = 1; step <= steps; ++step) {
    again();
    before_ = [step](int number) { return number == step; };
    EXPECT_FALSE(Open().ok()) << step;
    EXPECT_OK(Open());
    ExpectOneSession(absl::StrCat("refused: step ", step));
    again();
    after_ = [step](int number) { return number == step; };
    EXPECT_FALSE(Open().ok()) << step;
    EXPECT_OK(Open());
    ExpectOneSession(absl::StrCat("answer lost: step ", step));
  }
  // The process loses the lease, or is killed, before its n-th write.
  for (int step = 1; step <= 4; ++step) {
    again();
    int asked = 0;
    static_cast<void>(Open([&] { return ++asked < step; }));
    EXPECT_OK(Open());
    ExpectOneSession(absl::StrCat("stopped: step ", step));
  }
}

TEST_F(SessionOpenerTest, S9OnlyTheActiveProcessWrites) {
  const std::string before = Find(kRequest);
  EXPECT_OK(Open([] { return false; }));
  EXPECT_EQ(asked_, 0);
  EXPECT_EQ(Find(kRequest), before);
}

TEST_F(SessionOpenerTest, ARequestThatChangesMeanwhileIsReadAgain) {
  bool changed = false;
  before_ = [&](int) {
    if (!changed && Data().size() == 1) {
      changed = true;
      Change(kRequest, [](Object& object) {
        object.SetString({"metadata", "annotations", "example.com/note"}, "by a user");
      });
    }
    return false;
  };
  EXPECT_TRUE(absl::IsAborted(Open()));
  EXPECT_OK(Open());
  ExpectOneSession("");
  EXPECT_THAT(Find(kRequest), HasSubstr("by a user"));
}

TEST_F(SessionOpenerTest, ARequestThatIsDeletedMeanwhileIsOver) {
  before_ = [&](int) {
    if (Data().size() == 1) Remove(kRequest);
    return false;
  };
  EXPECT_FALSE(Open().ok());
  EXPECT_OK(Open());
  EXPECT_EQ(Find(kRequest), "");
}

TEST_F(SessionOpenerTest, S16ARequestPastItsExpiryOpensNothing) {
  Change(kRequest, [](Object& object) {
    object.SetString({"status", "sessionState"}, "Pending");
    object.SetString({"status", "expiryTime"}, "2020-01-01T00:00:00Z");
  });
  EXPECT_OK(Open());
  EXPECT_EQ(Request().status.state, "Pending");
  EXPECT_THAT(Data(), SizeIs(0));
}

TEST_F(SessionOpenerTest, S12ASnapshotThatIsMissingFailsTheRequest) {
  Remove(absl::StrCat(kSnapshots, "/namespaces/prod/volumesnapshots/monday"));
  ExpectFailed("VolumeSnapshot prod/monday does not exist");
}

TEST_F(SessionOpenerTest, S12AContentThatIsMissingFailsTheRequest) {
  Remove(absl::StrCat(kSnapshots, "/volumesnapshotcontents/content-tuesday"));
  ExpectFailed(
      "VolumeSnapshotContent content-tuesday of VolumeSnapshot prod/tuesday does not exist");
}

TEST_F(SessionOpenerTest, S12ASnapshotWithoutContentFailsTheRequest) {
  Change(absl::StrCat(kSnapshots, "/namespaces/prod/volumesnapshots/tuesday"),
         [](Object& object) { object.Remove({"status"}); });
  ExpectFailed("VolumeSnapshot prod/tuesday is not bound");
}

TEST_F(SessionOpenerTest, S12AContentOfAnotherSnapshotFailsTheRequest) {
  Change(absl::StrCat(kSnapshots, "/volumesnapshotcontents/content-tuesday"), [](Object& object) {
    object.SetString({"spec", "volumeSnapshotRef", "uid"}, "uid-of-a-former-one");
  });
  ExpectFailed("content-tuesday does not belong to VolumeSnapshot prod/tuesday");
}

TEST_F(SessionOpenerTest, S12SnapshotsOfTwoDriversFailTheRequest) {
  AddSnapshot("tuesday", "b.example.com");
  ExpectFailed("more than one driver: monday of a.example.com, tuesday of b.example.com");
}

TEST_F(SessionOpenerTest, S13NoConfigurationFailsTheRequest) {
  Remove(absl::StrCat(kConfigurations, "/a"));
  ExpectFailed(
      "no SnapshotServicesConfiguration has the label "
      "cbt.storage.k8s.io/driver=a.example.com");
}

TEST_F(SessionOpenerTest, S13TwoConfigurationsFailTheRequest) {
  AddConfiguration("b", "a.example.com");
  ExpectFailed("more than one SnapshotServicesConfiguration");
}

TEST_F(SessionOpenerTest, S13ADriverThatIsNoLabelFailsTheRequest) {
  // As a selector it would be another one.
  AddSnapshot("monday", "a.example.com,other=x");
  AddSnapshot("tuesday", "a.example.com,other=x");
  ExpectFailed("is not a valid label value");
}

TEST_F(SessionOpenerTest, S15AConfigurationWithoutANamespaceFailsTheRequest) {
  for (const char* const name_space : {"", "Not/One"}) {
    Change(absl::StrCat(kConfigurations, "/a"), [&](Object& object) {
      object.SetString({"spec", "driverNamespace"}, name_space);
    });
    Change(kRequest, [](Object& object) { object.Remove({"status"}); });
    EXPECT_OK(Open());
    EXPECT_EQ(Request().status.state, "Failed");
    EXPECT_THAT(Request().status.error, HasSubstr("lacks an address, a CA or the driver's"));
  }
}

}  // namespace
}  // namespace cbt::test

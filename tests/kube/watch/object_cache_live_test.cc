// The cache on a real API server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/kube/client.h"
#include "cbt/kube/config.h"
#include "cbt/kube/watch.h"
#include "tests/kube/support/control_plane.h"
#include "tests/kube/support/wire.h"
#include "tests/kube/watch/cache_probe.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace object_cache_live_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr auto kLivePatience = seconds(60);

class ObjectCacheLiveTest : public testing::Test {
 protected:
  void SetUp() override {
    CBT_NEED_CONTROL_PLANE();
    plane_ = &ControlPlane::Shared();
    static std::atomic<int> number{0};
    name_space_ = absl::StrCat("watch-", ++number);
    plane_->CreateNamespace(name_space_);
    kube::Config config = ValueOf(kube::LoadKubeconfig({.files = {plane_->admin_kubeconfig()}}));
    client_ = ValueOf(kube::Client::Create(std::move(config)));
  }

  std::string Path(const std::string& name = "") const {
    return absl::StrCat("/api/v1/namespaces/", name_space_, "/configmaps", name.empty() ? "" : "/",
                        name);
  }
  void Create(const std::string& name, const std::string& value) {
    plane_->Must(
        "POST", Path(),
        absl::StrCat(R"({"metadata":{"name":")", name, R"("},"data":{"value":")", value, "\"}}"));
    values_[name] = value;
  }
  void Change(const std::string& name, const std::string& value) {
    plane_->Must("PATCH", Path(name), absl::StrCat(R"({"data":{"value":")", value, "\"}}"),
                 "application/merge-patch+json");
    values_[name] = value;
  }
  void Remove(const std::string& name) {
    plane_->Must("DELETE", Path(name));
    values_.erase(name);
  }

  void Start(bool streaming) {
    kube::CacheOptions options;
    options.name_space = name_space_;
    options.handlers = judge_.handlers();
    options.streaming_list = streaming;
    options.page_size = 2;
    cache_ = ValueOf(kube::ObjectCache::Create(*client_, kube::kConfigMaps, std::move(options)));
    ASSERT_OK(cache_->WaitForSync(kLivePatience));
  }
  std::map<std::string, std::string> Contents() const {
    std::map<std::string, std::string> contents;
    for (const kube::ObjectPtr& object : cache_->All()) {
      contents[std::string(object->name())] = ValueIn(*object);
    }
    return contents;
  }
  void ExpectAgreement() {
    EXPECT_TRUE(Eventually(
        [&] {
          return cache_->CheckFresh(milliseconds(0)).ok() && Contents() == values_ &&
                 judge_.state() == ContentsOf(*cache_);
        },
        kLivePatience))
        << cache_->state().error;
    EXPECT_THAT(judge_.faults(), IsEmpty());
  }

  ControlPlane* plane_ = nullptr;
  std::string name_space_;
  std::map<std::string, std::string> values_;
  std::unique_ptr<kube::Client> client_;
  HandlerJudge judge_;
  std::unique_ptr<kube::ObjectCache> cache_;
};

TEST_F(ObjectCacheLiveTest, FollowsChangesAfterAStreamedList) {
  for (int i = 0; i < 5; ++i) Create(absl::StrCat("first-", i), "1");
  Start(true);
  // In one go: this server has lists as streams.
  EXPECT_EQ(client_->counters().requests, 1U);
  Create("new", "1");
  Change("first-0", "2");
  Remove("first-1");
  ExpectAgreement();
  EXPECT_EQ(cache_->state().lists, 1U);
}

TEST_F(ObjectCacheLiveTest, FollowsChangesAfterPages) {
  for (int i = 0; i < 5; ++i) Create(absl::StrCat("first-", i), "1");
  Start(false);
  Create("new", "1");
  Change("first-0", "2");
  Remove("first-1");
  ExpectAgreement();
}

TEST_F(ObjectCacheLiveTest, SurvivesARestartOfTheServer) {
  Create("one", "1");
  Start(true);
  for (const int signal : {SIGTERM, SIGKILL}) {
    plane_->StopApiServer(signal);
    ASSERT_TRUE(Eventually([&] { return !cache_->state().error.ok(); }, kLivePatience));
    EXPECT_FALSE(cache_->CheckFresh(milliseconds(0)).ok());
    EXPECT_EQ(Contents(), values_) << "emptied while the server was away";
    plane_->StartApiServer();
    Create(absl::StrCat("after-", signal), "1");
    Change("one", absl::StrCat("after-", signal));
    ExpectAgreement();
  }
}

TEST_F(ObjectCacheLiveTest, FindsWhatVanishedWhileHistoryWasCompacted) {
  Wire wire(plane_->port());
  kube::Config config = ValueOf(kube::LoadKubeconfig({.files = {plane_->admin_kubeconfig()}}));
  config.server = absl::StrCat("https://127.0.0.1:", wire.port());
  client_ = ValueOf(kube::Client::Create(std::move(config)));
  Create("stays", "1");
  Create("goes", "1");
  Create("changes", "1");
  Create("returns", "1");
  Start(true);
  const std::string version = cache_->state().resource_version;
  const kube::ObjectPtr stays = cache_->Find(name_space_, "stays");

  wire.Cut();
  ASSERT_TRUE(Eventually([&] { return !cache_->CheckFresh(milliseconds(0)).ok(); }, kLivePatience));
  Remove("goes");
  Change("changes", "2");
  Remove("returns");
  Create("returns", "2");
  Create("new", "1");
  plane_->Compact();
  // Its caches still have the history.
  plane_->RestartApiServer(SIGKILL);
  const ApiReply gone = plane_->Get(absl::StrCat(
      Path(), "?watch=1&timeoutSeconds=2&allowWatchBookmarks=true&resourceVersion=", version));
  ASSERT_THAT(gone.body, HasSubstr("\"code\":410"));
  wire.Join();
  ExpectAgreement();
  EXPECT_EQ(cache_->state().lists, 2U);
  EXPECT_EQ(cache_->Find(name_space_, "stays"), stays);
}

TEST_F(ObjectCacheLiveTest, NoticesAFrozenServer) {
  Create("one", "1");
  kube::CacheOptions options;
  options.name_space = name_space_;
  options.silence = milliseconds(500);
  auto cache = ValueOf(kube::ObjectCache::Create(*client_, kube::kConfigMaps, std::move(options)));
  ASSERT_OK(cache->WaitForSync(kLivePatience));
  plane_->PauseApiServer();
  EXPECT_TRUE(
      Eventually([&] { return !cache->CheckFresh(milliseconds(100)).ok(); }, kLivePatience));
  plane_->ContinueApiServer();
  EXPECT_TRUE(Eventually([&] { return cache->CheckFresh(milliseconds(0)).ok(); }, kLivePatience));
}

TEST_F(ObjectCacheLiveTest, WithoutTheRightItIsNeverSynced) {
  plane_->CreateServiceAccount(name_space_, "stranger");
  const std::string kubeconfig =
      plane_->TokenKubeconfig(plane_->Token(name_space_, "stranger"), name_space_);
  const auto client =
      ValueOf(kube::Client::Create(ValueOf(kube::LoadKubeconfig({.files = {kubeconfig}}))));
  kube::CacheOptions options;
  options.name_space = name_space_;
  auto cache = ValueOf(kube::ObjectCache::Create(*client, kube::kConfigMaps, std::move(options)));
  ASSERT_TRUE(
      Eventually([&] { return absl::IsPermissionDenied(cache->state().error); }, kLivePatience));
  EXPECT_FALSE(cache->WaitForSync(milliseconds(10)).ok());
  // The right comes later.
  plane_->Allow(absl::StrCat(name_space_, "-list"), name_space_, "stranger",
                R"([{"apiGroups":[""],"resources":["configmaps"],"verbs":["list","watch"]}])",
                name_space_);
  EXPECT_OK(cache->WaitForSync(kLivePatience));
}

}  // namespace object_cache_live_test
}  // namespace cbt::test

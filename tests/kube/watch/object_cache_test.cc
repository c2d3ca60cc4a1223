#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cbt/kube/watch.h"
#include "tests/kube/support/fake_api.h"
#include "tests/kube/watch/cache_probe.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace object_cache_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ObjectCacheTest : public ObjectCacheFixture {
 protected:
  void ListsAgain(bool streaming);
};

TEST_F(ObjectCacheTest, ListsAndFollows) {
  api_.Put("a", "one", "1");
  api_.Put("b", "two", "2");
  StartAndSync();
  EXPECT_THAT(judge_.calls(), ElementsAre("added a/one=1", "added b/two=2", "synced"));
  EXPECT_EQ(ValueAt("a", "one"), "1");
  EXPECT_EQ(ValueAt("a", "two"), "-");
  EXPECT_EQ(cache_->size(), 2U);
  const kube::ObjectPtr before = cache_->Find("a", "one");

  api_.Put("a", "one", "3");
  api_.Put("a", "three", "4");
  api_.Delete("b", "two");
  ExpectAgreement();
  EXPECT_THAT(judge_.calls(), ElementsAre("added a/one=1", "added b/two=2", "synced",
                                          "updated a/one=3", "added a/three=4", "deleted b/two=2"));
  EXPECT_EQ(ValueIn(*before), "1") << "what was handed out changed";
  EXPECT_OK(cache_->CheckFresh(milliseconds(0)));
  // An event counts once its handler has returned.
  ASSERT_TRUE(Eventually([&] { return cache_->state().events >= 3; }));
  const kube::CacheState state = cache_->state();
  EXPECT_TRUE(state.synced);
  EXPECT_FALSE(state.broken_since.has_value());
  EXPECT_EQ(state.lists, 1U);
  EXPECT_EQ(state.events, 3U);
  // A list that is a stream goes on as a watch.
  EXPECT_EQ(api_.requests().size(), 1U);
  EXPECT_FALSE(cache_->Find("a", "one")->Has({"metadata", "managedFields"}));
}

TEST_F(ObjectCacheTest, OneNamespaceAndSelectors) {
  api_.Put("a", "one", "1");
  api_.Put("b", "two", "2");
  kube::CacheOptions options = FastOptions();
  options.name_space = "b";
  options.label_selector = "x=y";
  options.field_selector = "metadata.name!=z";
  options.keep_managed_fields = true;
  StartAndSync(std::move(options));
  EXPECT_THAT(judge_.calls(), ElementsAre("added b/two=2", "synced"));
  const FakeRequest request = api_.requests().front();
  EXPECT_EQ(request.path, "/api/v1/namespaces/b/configmaps");
  EXPECT_EQ(request.query.at("labelSelector"), "x=y");
  EXPECT_EQ(request.query.at("fieldSelector"), "metadata.name!=z");
  const int length = std::stoi(request.query.at("timeoutSeconds"));
  EXPECT_GE(length, 300);
  EXPECT_LE(length, 600);
  EXPECT_TRUE(cache_->Find("b", "two")->Has({"metadata", "managedFields"}));
}

// In all three ways in which servers do not have lists as streams.
TEST_F(ObjectCacheTest, TakesPagesWhereListsAreNotStreams) {
  for (int i = 0; i < 7; ++i) api_.Put("a", std::to_string(i), "v");
  for (const std::string way : {"refuses", "ignores", "is silent"}) {
    SCOPED_TRACE(way);
    HandlerJudge judge;
    const size_t before = api_.requests().size();
    api_.SetPlan([way](const FakeRequest& request) -> FakePlan {
      if (!request.initial_events()) return {};
      if (way == "refuses") {
        return {
            .code = 422,
            .body =
                R"({"kind":"Status","apiVersion":"v1","status":"Failure","message":"sendInitialEvents is forbidden","reason":"Invalid","code":422})"};
      }
      return {.ignores_initial_events = true};
    });
    kube::CacheOptions options = FastOptions();
    options.page_size = 3;
    options.handlers = judge.handlers();
    if (way == "is silent") options.list_timeout = milliseconds(200);
    auto cache = ValueOf(kube::ObjectCache::Create(*client_, kube::kConfigMaps, options));
    if (way == "ignores") {
      ASSERT_TRUE(api_.WaitUntil([](const FakeApi& api) { return api.watching() > 0; }));
      // Not before the stream has begun: it would not be sent.
      for (int i = 0; i < 3000 && !cache->state().synced; ++i) {
        api_.Bookmark();
        std::this_thread::sleep_for(milliseconds(5));
      }
    }
    ASSERT_OK(cache->WaitForSync(kWaitLimit));
    EXPECT_EQ(cache->size(), 7U);
    // The stream that was in vain, three pages, the watch.
    ASSERT_TRUE(Eventually([&] { return cache->CheckFresh(milliseconds(0)).ok(); }));
    EXPECT_EQ(api_.requests().size() - before, 5U);
    api_.Put("a", way, "new");
    EXPECT_TRUE(Eventually([&] { return cache->Find("a", way) != nullptr; }));
    EXPECT_THAT(judge.faults(), IsEmpty());
    cache.reset();
    api_.Delete("a", way);
  }
}

TEST_F(ObjectCacheTest, PagesThatExpireAreTakenAsOneList) {
  for (int i = 0; i < 7; ++i) api_.Put("a", std::to_string(i), "v");
  std::atomic<int> pages{0};
  api_.SetPlan([&](const FakeRequest& request) -> FakePlan {
    if (!request.watch() && ++pages == 2) {
      api_.Put("a", "more", "v");
      api_.Compact();
    }
    return {};
  });
  kube::CacheOptions options = FastOptions();
  options.streaming_list = false;
  options.page_size = 3;
  StartAndSync(std::move(options));
  EXPECT_EQ(pages, 3);
  EXPECT_FALSE(api_.requests()[2].query.contains("continue"));
  ExpectAgreement();
}

TEST_F(ObjectCacheTest, ChangesBetweenPagesAreNotLost) {
  for (int i = 0; i < 7; ++i) api_.Put("a", std::to_string(i), "v");
  std::atomic<int> pages{0};
  api_.SetPlan([&](const FakeRequest& request) -> FakePlan {
    if (!request.watch() && ++pages == 2) {
      api_.Delete("a", "0");  // was on the first page
      api_.Put("a", "5", "changed");
      api_.Put("a", "00", "new");
    }
    return {};
  });
  kube::CacheOptions options = FastOptions();
  options.streaming_list = false;
  options.page_size = 3;
  StartAndSync(std::move(options));
  ExpectAgreement();
}

void ObjectCacheTest::ListsAgain(bool streaming) {
  kube::CacheOptions options = FastOptions();
  options.streaming_list = streaming;
  api_.Put("a", "stays", "1");
  api_.Put("a", "changes", "1");
  api_.Put("a", "goes", "1");
  api_.Put("a", "returns", "1");
  StartAndSync(std::move(options));
  const kube::ObjectPtr stays = cache_->Find("a", "stays");
  ASSERT_TRUE(Eventually([&] { return cache_->CheckFresh(milliseconds(0)).ok(); }));
  const size_t calls = judge_.calls().size();

  api_.SetReachable(false);
  api_.Disconnect();
  ASSERT_TRUE(Eventually([&] { return !cache_->CheckFresh(milliseconds(0)).ok(); }));
  api_.Put("a", "changes", "2");
  api_.Delete("a", "goes");
  api_.Delete("a", "returns");
  api_.Put("a", "returns", "2");
  api_.Put("a", "new", "1");
  api_.Put("a", "unseen", "1");
  api_.Delete("a", "unseen");
  api_.Compact();
  EXPECT_EQ(ValueAt("a", "goes"), "1") << "emptied by an error";
  api_.SetReachable(true);
  ExpectAgreement();
  std::vector<std::string> since = judge_.calls();
  since.erase(since.begin(), since.begin() + static_cast<ptrdiff_t>(calls));
  EXPECT_THAT(since, ElementsAre("deleted a/goes=1", "deleted a/returns=1", "updated a/changes=2",
                                 "added a/new=1", "added a/returns=2"));
  EXPECT_EQ(cache_->Find("a", "stays"), stays) << "an object that did not change was replaced";
  EXPECT_EQ(cache_->state().lists, 2U);
  EXPECT_EQ(judge_.synced(), 1);
}

TEST_F(ObjectCacheTest, ListsAgainAsAStreamWhenTheVersionIsTooOld) { ListsAgain(true); }
TEST_F(ObjectCacheTest, ListsAgainInPagesWhenTheVersionIsTooOld) { ListsAgain(false); }

TEST_F(ObjectCacheTest, StalenessIsVisible) {
  const kube::CacheState none = [&] {
    api_.SetReachable(false);
    Start();
    return cache_->state();
  }();
  EXPECT_FALSE(none.synced);
  EXPECT_TRUE(none.broken_since.has_value());
  EXPECT_TRUE(absl::IsUnavailable(cache_->CheckFresh(seconds(100))));
  ASSERT_TRUE(Eventually([&] { return !cache_->state().error.ok(); }));
  const absl::Status timeout = cache_->WaitForSync(milliseconds(5));
  EXPECT_TRUE(absl::IsDeadlineExceeded(timeout));
  EXPECT_THAT(std::string(timeout.message()), HasSubstr("no list of configmaps yet: "));
  EXPECT_EQ(cache_->Find("a", "one"), nullptr);
  api_.SetReachable(true);
  ASSERT_OK(cache_->WaitForSync(kWaitLimit));
  EXPECT_OK(cache_->CheckFresh(milliseconds(0)));
  EXPECT_TRUE(cache_->state().error.ok());

  const auto before = kube::CacheState::Clock::now();
  api_.SetReachable(false);
  api_.Disconnect();
  ASSERT_TRUE(Eventually([&] { return !cache_->state().error.ok(); }));
  EXPECT_GE(*cache_->state().broken_since, before);
  EXPECT_OK(cache_->CheckFresh(seconds(1000)));
  const absl::Status stale = cache_->CheckFresh(milliseconds(0));
  EXPECT_TRUE(absl::IsUnavailable(stale));
  EXPECT_THAT(std::string(stale.message()), HasSubstr("no watch of configmaps: "));
  api_.SetReachable(true);
  ASSERT_TRUE(Eventually([&] { return cache_->CheckFresh(milliseconds(0)).ok(); }));
}

TEST_F(ObjectCacheTest, WatchesEndInTheirTimeAndGoOn) {
  kube::CacheOptions options = FastOptions();
  options.min_watch = options.max_watch = seconds(1);
  StartAndSync(std::move(options));
  api_.Bookmark();
  ASSERT_TRUE(api_.WaitUntil([](const FakeApi& api) { return api.requests().size() >= 3; }));
  api_.Put("a", "one", "1");
  ExpectAgreement();
  EXPECT_EQ(cache_->state().lists, 1U);
  // From the bookmark's version on.
  EXPECT_EQ(api_.requests()[1].query.at("resourceVersion"), "11");
}

TEST_F(ObjectCacheTest, Resyncs) {
  api_.Put("a", "one", "1");
  api_.Put("a", "two", "2");
  kube::CacheOptions options = FastOptions();
  options.resync = milliseconds(30);
  StartAndSync(std::move(options));
  ASSERT_TRUE(Eventually([&] { return judge_.resyncs() >= 6; }));
  // Also without a server.
  api_.SetReachable(false);
  api_.Disconnect();
  const int before = judge_.resyncs();
  ASSERT_TRUE(Eventually([&] { return judge_.resyncs() >= before + 6; }));
  EXPECT_THAT(judge_.faults(), IsEmpty());
}

TEST_F(ObjectCacheTest, Indexes) {
  api_.Put("a", "one", "red");
  api_.Put("b", "two", "red");
  api_.Put("b", "three", "blue");
  kube::CacheOptions options = FastOptions();
  options.indexes = {
      {"value", [](const kube::Object& object) { return std::vector{ValueIn(object)}; }},
      {"none", [](const kube::Object&) { return std::vector<std::string>(); }},
      {"twice", [](const kube::Object&) {
         return std::vector<std::string>{"x", "x", "y"};
       }}};
  StartAndSync(std::move(options));
  const auto names = [&](const char* index, const char* value) {
    std::vector<std::string> found;
    for (const kube::ObjectPtr& object : cache_->ByIndex(index, value)) {
      found.emplace_back(object->name());
    }
    return found;
  };
  EXPECT_THAT(names("value", "red"), ElementsAre("one", "two"));
  EXPECT_THAT(names("value", "green"), IsEmpty());
  EXPECT_THAT(names("none", ""), IsEmpty());
  EXPECT_THAT(names("unknown", "red"), IsEmpty());
  EXPECT_THAT(names("twice", "x"), ElementsAre("one", "three", "two"));
  api_.Put("b", "two", "green");
  api_.Delete("a", "one");
  api_.Put("c", "four", "blue");
  ExpectAgreement();
  EXPECT_THAT(names("value", "red"), IsEmpty());
  EXPECT_THAT(names("value", "green"), ElementsAre("two"));
  EXPECT_THAT(names("value", "blue"), ElementsAre("three", "four"));
  EXPECT_THAT(names("twice", "y"), ElementsAre("three", "two", "four"));
}

TEST_F(ObjectCacheTest, HandlersMayThrow) {
  api_.Put("a", "one", "1");
  kube::CacheOptions options = FastOptions();
  options.handlers.added = [](const kube::ObjectPtr&) { throw std::runtime_error("thrown"); };
  options.handlers.updated = [](const kube::ObjectPtr&, const kube::ObjectPtr&) { throw 7; };
  auto cache = ValueOf(kube::ObjectCache::Create(*client_, kube::kConfigMaps, options));
  ASSERT_OK(cache->WaitForSync(kWaitLimit));
  api_.Put("a", "one", "2");
  EXPECT_TRUE(Eventually([&] { return ValueIn(*cache->Find("a", "one")) == "2"; }));
  EXPECT_EQ(cache->state().lists, 1U);
}

TEST_F(ObjectCacheTest, AnIndexThatThrowsIsAnErrorAndLosesNothing) {
  api_.Put("a", "one", "1");
  std::atomic<bool> broken{false};
  kube::CacheOptions options = FastOptions();
  options.indexes = {{"value", [&](const kube::Object& object) {
                        if (broken) throw std::runtime_error("index broken");
                        return std::vector{ValueIn(object)};
                      }}};
  auto cache = ValueOf(kube::ObjectCache::Create(*client_, kube::kConfigMaps, options));
  ASSERT_OK(cache->WaitForSync(kWaitLimit));
  broken = true;
  api_.Put("a", "one", "2");
  ASSERT_TRUE(Eventually([&] { return !cache->state().error.ok(); }));
  EXPECT_THAT(std::string(cache->state().error.message()), HasSubstr("index broken"));
  EXPECT_EQ(cache->ByIndex("value", "1").size(), 1U);
  broken = false;
  EXPECT_TRUE(Eventually([&] { return cache->ByIndex("value", "2").size() == 1; }));
  EXPECT_TRUE(cache->ByIndex("value", "1").empty());
}

TEST_F(ObjectCacheTest, EndsQuicklyInEveryState) {
  using Clock = std::chrono::steady_clock;
  for (const std::string state :
       {"unreachable", "before the head", "in a list", "in a page", "watching", "in back-off"}) {
    SCOPED_TRACE(state);
    api_.SetReachable(state != "unreachable");
    api_.SetPlan([state](const FakeRequest& request) -> FakePlan {
      FakePlan plan;
      plan.end = FakePlan::End::kHang;
      if (state == "before the head" || state == "in a page") plan.delay_ms = 1500;
      if (state == "in a list" && request.watch()) plan.stop_after_bytes = 10;
      if (state == "in back-off") plan = {.code = 500, .body = "{}"};
      return plan;
    });
    kube::CacheOptions options;
    options.streaming_list = state != "in a page";
    auto cache = ValueOf(kube::ObjectCache::Create(*client_, kube::kConfigMaps, options));
    if (state == "watching") {
      ASSERT_OK(cache->WaitForSync(kWaitLimit));
    }
    std::this_thread::sleep_for(milliseconds(50));
    const Clock::time_point begin = Clock::now();
    cache.reset();
    EXPECT_LT(Clock::now() - begin, milliseconds(1000));
  }
  api_.SetReachable(true);
}

TEST_F(ObjectCacheTest, RefusesOptionsThatCantWork) {
  const auto create = [&](const std::function<void(kube::CacheOptions&)>& change,
                          kube::Resource resource = kube::kConfigMaps) {
    kube::CacheOptions options;
    change(options);
    return kube::ObjectCache::Create(*client_, resource, options).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(create([](auto& o) { o.max_watch = seconds(1); }), kInvalid);
  EXPECT_EQ(create([](auto& o) { o.min_watch = seconds(0); }), kInvalid);
  EXPECT_EQ(create([](auto& o) { o.page_size = 0; }), kInvalid);
  EXPECT_EQ(create([](auto& o) { o.list_timeout = milliseconds(0); }), kInvalid);
  EXPECT_EQ(create([](auto& o) { o.silence = milliseconds(0); }), kInvalid);
  EXPECT_EQ(create([](auto& o) { o.resync = milliseconds(-1); }), kInvalid);
  EXPECT_EQ(create([](auto& o) { o.indexes["x"] = {}; }), kInvalid);
  EXPECT_EQ(create([](auto& o) { o.name_space = "a/b"; }), kInvalid);
  EXPECT_EQ(create([](auto& o) { o.name_space = "a"; }, kube::kNamespaces), kInvalid);
}

}  // namespace object_cache_test
}  // namespace cbt::test

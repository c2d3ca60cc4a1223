// Connections that break, servers that are wrong: the cache finds back, and believes nothing wrong.
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
namespace object_cache_faults_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using ObjectCacheFaultsTest = ObjectCacheFixture;

TEST_F(ObjectCacheFaultsTest, ResumesAfterEveryWayInWhichAWatchEnds) {
  api_.Put("a", "one", "0");
  StartAndSync();
  int round = 0;
  for (const FakePlan::End end : {FakePlan::End::kClean, FakePlan::End::kClose,
                                  FakePlan::End::kReset, FakePlan::End::kHalfClose}) {
    SCOPED_TRACE(static_cast<int>(end));
    // The next watch stops after one event.
    std::atomic<bool> once{true};
    api_.SetPlan([&once, end](const FakeRequest&) -> FakePlan {
      FakePlan plan;
      plan.end = end;
      if (once.exchange(false)) plan.stop_after_lines = 1;
      return plan;
    });
    api_.Disconnect();
    for (int i = 0; i < 3; ++i) api_.Put("a", "one", std::to_string(++round));
    ExpectAgreement();
    EXPECT_FALSE(once);
  }
  EXPECT_EQ(cache_->state().lists, 1U) << "listed again without need";
  for (const FakeRequest& request : api_.requests()) {
    EXPECT_EQ(request.initial_events(), request.number == 1);
  }
}

// A connection may break at every byte of the framing, of a line, of a list.
TEST_F(ObjectCacheFaultsTest, NothingIsLostWhereverAStreamIsCut) {
  api_.Put("a", "one", "0");
  api_.Put("a", "two", "0");
  const size_t length = 1200;
  for (const size_t piece : {0u, 1u, 7u}) {
    for (size_t cut = 0; cut < length; cut += piece == 0 ? 29 : 97) {
      SCOPED_TRACE("cut at " + std::to_string(cut) + ", pieces of " + std::to_string(piece));
      HandlerJudge judge;
      kube::CacheOptions options = FastOptions();
      options.handlers = judge.handlers();
      std::atomic<int> streams{0};
      api_.SetPlan([&, cut, piece](const FakeRequest&) -> FakePlan {
        FakePlan plan;
        plan.piece = piece;
        plan.end = cut % 2 == 0 ? FakePlan::End::kClose : FakePlan::End::kReset;
        if (++streams <= 2) plan.stop_after_bytes = cut;
        return plan;
      });
      auto cache = ValueOf(kube::ObjectCache::Create(*client_, kube::kConfigMaps, options));
      api_.Put("a", "one", std::to_string(cut));
      api_.Put("a", "three", std::to_string(cut));
      api_.Delete("a", "three");
      ASSERT_OK(cache->WaitForSync(kWaitLimit));
      std::map<HandlerJudge::Key, HandlerJudge::State> want;
      for (const auto& [key, object] : api_.objects()) {
        want[key] = {object.uid, std::to_string(object.resource_version), object.value};
      }
      ASSERT_TRUE(Eventually([&] { return ContentsOf(*cache) == want && judge.state() == want; }));
      ASSERT_THAT(judge.faults(), IsEmpty());
    }
  }
}

TEST_F(ObjectCacheFaultsTest, GoneAsAnHttpAnswerMeansTheSame) {
  api_.Put("a", "one", "1");
  StartAndSync();
  std::atomic<bool> once{true};
  api_.SetPlan([&](const FakeRequest& request) -> FakePlan {
    if (request.initial_events() || !once.exchange(false)) return {};
    return {
        .code = 410,
        .body =
            R"({"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410})"};
  });
  api_.Disconnect();
  api_.Put("a", "one", "2");
  ExpectAgreement();
  EXPECT_EQ(cache_->state().lists, 2U);
}

// A restart of the API server that took long: the history is lost with it.
TEST_F(ObjectCacheFaultsTest, ListsAtOnceWhenTheServerIsBackWithoutItsHistory) {
  api_.Put("a", "one", "1");
  kube::CacheOptions options = FastOptions();
  // The second wait would be longer than the test's wait_limit.
  options.back_off = {.first = milliseconds(1), .max = std::chrono::minutes(10), .factor = 600000};
  StartAndSync(std::move(options));
  std::atomic<int> refused{0};
  api_.SetPlan([&](const FakeRequest& request) -> FakePlan {
    if (request.initial_events() || refused++ > 0) return {};
    return {
        .code = 410,
        .body =
            R"({"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410})"};
  });
  api_.Disconnect();
  api_.Put("a", "one", "2");
  ExpectAgreement();
  EXPECT_EQ(refused, 1);
}

TEST_F(ObjectCacheFaultsTest, AServerWithoutAnyHistoryIsNotAskedWithoutPause) {
  std::atomic<int> requests{0};
  kube::CacheOptions options = FastOptions();
  options.back_off = {.first = milliseconds(50), .max = milliseconds(50)};
  StartAndSync(std::move(options));
  api_.SetPlan([&](const FakeRequest& request) -> FakePlan {
    ++requests;
    FakePlan plan;
    plan.end = FakePlan::End::kClean;
    plan.stop_after_lines = 1;  // the end of an empty list
    if (request.initial_events()) return plan;
    return {
        .code = 410,
        .body =
            R"({"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410})"};
  });
  api_.Disconnect();
  std::this_thread::sleep_for(milliseconds(600));
  EXPECT_GE(requests, 3);
  EXPECT_LE(requests, 30);
}

// What no server should send: the cache must not believe it, and must find back.
TEST_F(ObjectCacheFaultsTest, WrongEventsLeadToANewList) {
  const std::string object =
      R"({"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","namespace":"a","uid":"u","resourceVersion":"5"}})";
  const std::vector<std::string> wrong = {
      "nonsense\n",
      "{}\n",
      "[]\n",
      "{\"type\":\"ADDED\"}\n",
      "{\"type\":\"ADDED\",\"object\":7}\n",
      "{\"type\":7,\"object\":" + object + "}\n",
      "{\"type\":\"REPLACED\",\"object\":" + object + "}\n",
      "{\"type\":\"added\",\"object\":" + object + "}\n",
      "{\"type\":\"ADDED\",\"object\":" + object + "}}\n",
      "{\"type\":\"ADDED\",\"object\":" + object + "\n",
      R"({"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x","namespace":"a","resourceVersion":"5"}}})"
      "\n",
      R"({"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v2","metadata":{"name":"x","namespace":"a","resourceVersion":"5"}}})"
      "\n",
      R"({"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"a","resourceVersion":"5"}}})"
      "\n",
      R"({"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","resourceVersion":"5"}}})"
      "\n",
      R"({"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","namespace":"a"}}})"
      "\n",
      R"({"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","namespace":"a","resourceVersion":5}}})"
      "\n",
      R"({"type":"DELETED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":7,"namespace":"a","resourceVersion":"5"}}})"
      "\n",
      R"({"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{}}})"
      "\n",
      R"({"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd","reason":"InternalError"}})"
      "\n",
      R"({"type":"ERROR","object":{}})"
      "\n",
      std::string("{\"type\":\"ADDED\0", 15) + "\",\"object\":" + object + "}\n",
      "{\"type\":\"ADDED\",\"object\":" + std::string(100000, '[') + "}\n",
      std::string(5000000, 'x') + "\n",
  };
  kube::CacheOptions options = FastOptions();
  options.max_object_bytes = 1000000;
  StartAndSync(std::move(options));
  int round = 0;
  for (const std::string& line : wrong) {
    SCOPED_TRACE(line.substr(0, 160));
    const uint64_t lists = cache_->state().lists;
    std::atomic<bool> once{true};
    api_.SetPlan([&](const FakeRequest&) -> FakePlan {
      FakePlan plan;
      if (once.exchange(false)) plan.insert = {{0, line}};
      return plan;
    });
    api_.Disconnect();
    // The wrong line comes before the first change that the new watch sees.
    EXPECT_TRUE(Eventually([&] {
      api_.Put("a", "one", std::to_string(++round));
      return cache_->state().lists > lists || line.size() > 1000000;
    }));
    ExpectAgreement();
    EXPECT_FALSE(once);
  }
}

TEST_F(ObjectCacheFaultsTest, WrongListsAreNotBelieved) {
  api_.Put("a", "one", "1");
  const std::vector<std::string> wrong = {
      "",
      "{}",
      "[]",
      R"({"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[]})",
      R"({"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"8:a:b"},"items":[]})",
      R"({"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"x"}}]})",
      R"({"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"x","namespace":"a"}}]})",
      R"({"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[)",
      R"({"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":7})",
  };
  for (const std::string& body : wrong) {
    SCOPED_TRACE(body);
    HandlerJudge judge;
    std::atomic<int> lists{0};
    api_.SetPlan([&](const FakeRequest& request) -> FakePlan {
      FakePlan plan;
      if (!request.watch() && ++lists <= 2)
        plan.edit = [&](size_t, const std::string&) { return body; };
      return plan;
    });
    kube::CacheOptions options = FastOptions();
    options.streaming_list = false;
    options.handlers = judge.handlers();
    auto cache = ValueOf(kube::ObjectCache::Create(*client_, kube::kConfigMaps, options));
    ASSERT_OK(cache->WaitForSync(kWaitLimit));
    EXPECT_EQ(lists, 3);
    EXPECT_EQ(cache->size(), 1U);
    EXPECT_THAT(judge.calls(), ElementsAre("added a/one=1", "synced"));
  }
}

TEST_F(ObjectCacheFaultsTest, AServerThatFallsSilentIsLeft) {
  api_.Put("a", "one", "1");
  std::atomic<int> streams{0};
  api_.SetPlan([&](const FakeRequest&) -> FakePlan {
    FakePlan plan;
    if (++streams == 1) {
      plan.stop_after_lines = 2;
      plan.end = FakePlan::End::kHang;
    }
    return plan;
  });
  kube::CacheOptions options = FastOptions();
  options.silence = milliseconds(300);
  StartAndSync(std::move(options));
  api_.Put("a", "one", "2");
  ExpectAgreement();
  EXPECT_EQ(cache_->state().lists, 1U);
}

TEST_F(ObjectCacheFaultsTest, AWatchThatEndsAtOnceIsNotAskedForWithoutPause) {
  std::atomic<int> streams{0};
  api_.SetPlan([&](const FakeRequest& request) -> FakePlan {
    FakePlan plan;
    ++streams;
    plan.end = FakePlan::End::kClean;
    if (!request.initial_events()) plan.stop_after_lines = 0;
    return plan;
  });
  kube::CacheOptions options = FastOptions();
  options.back_off = {.first = milliseconds(50), .max = milliseconds(50)};
  StartAndSync(std::move(options));
  api_.Disconnect();
  std::this_thread::sleep_for(milliseconds(600));
  EXPECT_GE(streams, 3);
  EXPECT_LE(streams, 15);
}

TEST_F(ObjectCacheFaultsTest, WaitsAsLongAsTheServerAsks) {
  StartAndSync();
  std::atomic<int> refused{0};
  api_.SetPlan([&](const FakeRequest&) -> FakePlan {
    if (++refused > 1) return {};
    return {
        .code = 429,
        .body =
            R"({"kind":"Status","apiVersion":"v1","status":"Failure","message":"storage is (re)initializing","reason":"TooManyRequests","code":429})",
        .headers = {"Retry-After: 1"}};
  });
  const auto begin = std::chrono::steady_clock::now();
  api_.Disconnect();
  api_.Put("a", "one", "1");
  ExpectAgreement();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(990));
  EXPECT_EQ(cache_->state().lists, 1U);
}

TEST_F(ObjectCacheFaultsTest, LimitsLeaveTheCacheAsItIs) {
  for (const bool streaming : {true, false}) {
    SCOPED_TRACE(streaming);
    for (const auto& [key, object] : api_.objects()) api_.Delete(key.first, key.second);
    for (int i = 0; i < 3; ++i) api_.Put("a", std::to_string(i), "v");
    kube::CacheOptions options = FastOptions();
    options.max_objects = 3;
    options.streaming_list = streaming;
    auto cache = ValueOf(kube::ObjectCache::Create(*client_, kube::kConfigMaps, options));
    ASSERT_OK(cache->WaitForSync(kWaitLimit));
    api_.Put("a", "3", "v");
    ASSERT_TRUE(Eventually([&] { return absl::IsResourceExhausted(cache->state().error); }));
    EXPECT_FALSE(cache->CheckFresh(milliseconds(0)).ok());
    EXPECT_EQ(cache->size(), 3U);
    api_.Delete("a", "0");
    ASSERT_TRUE(Eventually([&] { return cache->Find("a", "3") != nullptr; }));
    EXPECT_TRUE(Eventually([&] { return cache->CheckFresh(milliseconds(0)).ok(); }));
  }
}

}  // namespace object_cache_faults_test
}  // namespace cbt::test

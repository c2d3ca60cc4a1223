// Random changes, random faults: in the end the cache has what the server has, handlers have seen
// one possible history of each object, and readers have never seen anything that never was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "cbt/kube/watch.h"
#include "tests/kube/support/fake_api.h"
#include "tests/kube/watch/cache_probe.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace object_cache_model_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::IsEmpty;

constexpr int kSteps = 1500;

// What may go wrong with an answer, by chance.
class RandomFaults {
 public:
  explicit RandomFaults(uint64_t seed) : random_(seed) {}

  FakePlan operator()(const FakeRequest& request) {
    std::lock_guard lock(mutex_);
    FakePlan plan;
    if (calm_) return plan;
    plan.piece = Below(4) == 0 ? 1 + Below(50) : 0;
    static constexpr FakePlan::End kEnds[] = {FakePlan::End::kClean, FakePlan::End::kClose,
                                              FakePlan::End::kReset, FakePlan::End::kHalfClose,
                                              FakePlan::End::kHang};
    plan.end = kEnds[Below(5)];
    switch (Below(8)) {
      case 0:
        plan.stop_after_bytes = Below(3000);
        break;
      case 1:
      case 2:
        plan.stop_after_lines = Below(12);
        break;
      case 3:
        return Refusal();
      case 4:
        plan.insert = {{Below(6), "{\"type\":\"ADDED\",\"object\":nonsense\n"}};
        break;
      case 5:
        plan.ignores_initial_events = request.initial_events() && Below(8) == 0;
        break;
      default:
        break;
    }
    return plan;
  }

  void Calm() {
    std::lock_guard lock(mutex_);
    calm_ = true;
  }

 private:
  size_t Below(size_t bound) { return random_() % bound; }

  FakePlan Refusal() {
    static constexpr std::pair<int, const char*> kRefusals[] = {{410, "Expired"},
                                                                {429, "TooManyRequests"},
                                                                {500, "InternalError"},
                                                                {503, "Unavailable"},
                                                                {403, "Forbidden"}};
    const auto& [code, reason] = kRefusals[Below(5)];
    return {
        .code = code,
        .body =
            R"({"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":")" +
            std::string(reason) + "\",\"code\":" + std::to_string(code) + "}"};
  }

  std::mutex mutex_;
  std::mt19937_64 random_;
  bool calm_ = false;
};

class ObjectCacheModelTest : public testing::TestWithParam<bool> {};

TEST_P(ObjectCacheModelTest, EndsWhereTheServerIs) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto below = [&](size_t bound) { return random() % bound; };

  FakeApi api;
  RandomFaults faults(seed + 1);
  api.SetPlan([&](const FakeRequest& request) { return faults(request); });
  HandlerJudge judge;
  kube::CacheOptions options = FastOptions();
  options.handlers = judge.handlers();
  options.streaming_list = GetParam();
  options.page_size = static_cast<int64_t>(1 + below(5));
  options.min_watch = options.max_watch = seconds(1);
  options.silence = milliseconds(150);
  options.list_timeout = milliseconds(300);
  options.resync = milliseconds(below(2) * 7);
  options.indexes = {
      {"value", [](const kube::Object& object) { return std::vector{ValueIn(object)}; }}};
  for (size_t i = below(6); i > 0; --i) api.Put("a", std::to_string(i), "first");

  // Every state that an object ever had.
  std::mutex mutex;
  std::set<std::tuple<std::string, uint64_t, std::string>> states;
  const auto remember = [&] {
    std::lock_guard lock(mutex);
    for (const auto& [key, object] : api.objects()) {
      states.emplace(object.uid, object.resource_version, object.value);
    }
  };
  remember();

  const auto client = ClientOf(api.url());
  auto cache = ValueOf(kube::ObjectCache::Create(*client, kube::kConfigMaps, options));
  std::atomic<bool> done{false};
  std::atomic<int> impossible{0};
  std::thread reader([&] {
    while (!done) {
      for (const kube::ObjectPtr& object : cache->All()) {
        std::lock_guard lock(mutex);
        if (!states.contains({std::string(object->uid()),
                              std::stoull(std::string(object->resource_version())),
                              ValueIn(*object)})) {
          ++impossible;
        }
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  for (int step = 0; step < kSteps; ++step) {
    const std::string name_space(1, static_cast<char>('a' + below(2)));
    const std::string name = std::to_string(below(6));
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        api.Delete(name_space, name);
        break;
      case 3:
        api.Bookmark();
        break;
      case 4:
        api.Disconnect();
        break;
      case 5:
        if (below(4) == 0) api.Compact();
        break;
      case 6:
        std::this_thread::sleep_for(milliseconds(below(12)));
        break;
      default: {
        // The reader may see it before this thread notes it.
        std::lock_guard lock(mutex);
        api.Put(name_space, name, std::to_string(below(5)));
        for (const auto& [key, object] : api.objects()) {
          states.emplace(object.uid, object.resource_version, object.value);
        }
      }
    }
  }
  faults.Calm();
  std::map<HandlerJudge::Key, HandlerJudge::State> want;
  for (const auto& [key, object] : api.objects()) {
    want[key] = {object.uid, std::to_string(object.resource_version), object.value};
  }
  EXPECT_TRUE(Eventually([&] {
    return cache->CheckFresh(milliseconds(0)).ok() && ContentsOf(*cache) == want &&
           judge.state() == want;
  })) << cache->state().error;
  done = true;
  reader.join();
  EXPECT_EQ(impossible, 0);
  EXPECT_THAT(judge.faults(), IsEmpty());
  EXPECT_EQ(judge.synced(), 1);
  size_t indexed = 0;
  for (const std::string value : {"first", "0", "1", "2", "3", "4"}) {
    for (const kube::ObjectPtr& object : cache->ByIndex("value", value)) {
      EXPECT_EQ(ValueIn(*object), value);
      EXPECT_EQ(cache->Find(object->name_space(), object->name()), object);
      ++indexed;
    }
  }
  EXPECT_EQ(indexed, want.size());
  cache.reset();
  EXPECT_THAT(api.complaints(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Lists, ObjectCacheModelTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Streams" : "Pages"; });

}  // namespace object_cache_model_test
}  // namespace cbt::test

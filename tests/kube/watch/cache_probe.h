// A cache, and what its handlers saw.
#ifndef CBT_TESTS_KUBE_WATCH_CACHE_PROBE_H_
#define CBT_TESTS_KUBE_WATCH_CACHE_PROBE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/kube/client.h"
#include "cbt/kube/config.h"
#include "cbt/kube/watch.h"
#include "tests/kube/support/fake_api.h"
#include "tests/support/status.h"

namespace cbt::test {

inline std::unique_ptr<kube::Client> ClientOf(const std::string& url) {
  kube::Config config;
  config.server = url;
  kube::ClientOptions options;
  options.qps = 0;
  return ValueOf(kube::Client::Create(std::move(config), options));
}

inline std::string ValueIn(const kube::Object& object) {
  return ValueOf(object.OptionalString({"data", "value"})).value_or("");
}

// Fast, so that tests of many failures take no minutes.
inline kube::CacheOptions FastOptions() {
  kube::CacheOptions options;
  options.back_off = {.first = std::chrono::milliseconds(1), .max = std::chrono::milliseconds(20)};
  return options;
}

inline bool Eventually(const std::function<bool()>& condition,
                       std::chrono::seconds wait_limit = std::chrono::seconds(30)) {
  const auto until = std::chrono::steady_clock::now() + wait_limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Judges the calls of the handlers: for each object they must form one possible history. Keeps what
// they add up to.
class HandlerJudge {
 public:
  using Key = std::pair<std::string, std::string>;
  struct State {
    std::string uid;
    std::string version;
    std::string value;
    friend bool operator==(const State&, const State&) = default;
  };

  kube::ObjectHandlers handlers() {
    return {
        .added =
            [this](const kube::ObjectPtr& object) {
              std::lock_guard lock(mutex_);
              Note("added", *object);
              if (!state_.emplace(KeyOf(*object), StateOf(*object)).second) {
                Fail("added twice", *object);
              }
            },
        .updated =
            [this](const kube::ObjectPtr& before, const kube::ObjectPtr& now) {
              std::lock_guard lock(mutex_);
              if (before == now) {
                ++resyncs_;
              } else {
                Note("updated", *now);
              }
              const auto at = state_.find(KeyOf(*now));
              if (at == state_.end() || !(at->second == StateOf(*before))) {
                Fail("updated from another state", *now);
              } else if (at->second.uid != now->uid()) {
                Fail("updated to another object", *now);
              } else if (before != now && at->second.version == now->resource_version()) {
                Fail("updated without a change", *now);
              } else {
                at->second = StateOf(*now);
              }
            },
        .deleted =
            [this](const kube::ObjectPtr& last) {
              std::lock_guard lock(mutex_);
              Note("deleted", *last);
              const auto at = state_.find(KeyOf(*last));
              if (at == state_.end() || at->second.uid != last->uid()) {
                Fail("deleted what was not there", *last);
              } else {
                state_.erase(at);
              }
            },
        .synced =
            [this] {
              std::lock_guard lock(mutex_);
              ++synced_;
              calls_.emplace_back("synced");
            },
    };
  }

  std::map<Key, State> state() const {
    std::lock_guard lock(mutex_);
    return state_;
  }
  std::vector<std::string> calls() const {
    std::lock_guard lock(mutex_);
    return calls_;
  }
  std::vector<std::string> faults() const {
    std::lock_guard lock(mutex_);
    return faults_;
  }
  int resyncs() const {
    std::lock_guard lock(mutex_);
    return resyncs_;
  }
  int synced() const {
    std::lock_guard lock(mutex_);
    return synced_;
  }

  static State StateOf(const kube::Object& object) {
    return {std::string(object.uid()), std::string(object.resource_version()), ValueIn(object)};
  }
  static Key KeyOf(const kube::Object& object) {
    return {std::string(object.name_space()), std::string(object.name())};
  }

 private:
  void Note(const char* what, const kube::Object& object) {
    calls_.push_back(absl::StrCat(what, " ", std::string(object.name_space()), "/",
                                  std::string(object.name()), "=", ValueIn(object)));
  }
  void Fail(const char* what, const kube::Object& object) {
    faults_.push_back(absl::StrCat(what, ": ", std::string(object.name())));
  }

  mutable std::mutex mutex_;
  std::map<Key, State> state_;
  std::vector<std::string> calls_;
  std::vector<std::string> faults_;
  int resyncs_ = 0;
  int synced_ = 0;
};

inline std::map<HandlerJudge::Key, HandlerJudge::State> ContentsOf(const kube::ObjectCache& cache) {
  std::map<HandlerJudge::Key, HandlerJudge::State> contents;
  for (const kube::ObjectPtr& object : cache.All()) {
    contents.emplace(HandlerJudge::KeyOf(*object), HandlerJudge::StateOf(*object));
  }
  return contents;
}

constexpr auto kWaitLimit = std::chrono::seconds(30);

// A cache of the config maps of a fake server.
class ObjectCacheFixture : public testing::Test {
 protected:
  ~ObjectCacheFixture() override { EXPECT_THAT(api_.complaints(), testing::IsEmpty()); }

  void Start(kube::CacheOptions options = FastOptions()) {
    options.handlers = judge_.handlers();
    cache_ = ValueOf(kube::ObjectCache::Create(*client_, kube::kConfigMaps, std::move(options)));
  }
  void StartAndSync(kube::CacheOptions options = FastOptions()) {
    Start(std::move(options));
    ASSERT_OK(cache_->WaitForSync(kWaitLimit));
  }
  std::string ValueAt(const std::string& name_space, const std::string& name) {
    const kube::ObjectPtr object = cache_->Find(name_space, name);
    return object == nullptr ? "-" : ValueIn(*object);
  }
  // The cache has what the server has, and handlers said so.
  bool Agrees() {
    std::map<HandlerJudge::Key, HandlerJudge::State> want;
    for (const auto& [key, object] : api_.objects()) {
      want[key] = {object.uid, std::to_string(object.resource_version), object.value};
    }
    return ContentsOf(*cache_) == want && judge_.state() == want;
  }
  void ExpectAgreement() {
    EXPECT_TRUE(Eventually([&] { return Agrees(); })) << cache_->state().error;
    EXPECT_THAT(judge_.faults(), testing::IsEmpty());
  }

  FakeApi api_;
  std::unique_ptr<kube::Client> client_ = ClientOf(api_.url());
  HandlerJudge judge_;
  std::unique_ptr<kube::ObjectCache> cache_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_KUBE_WATCH_CACHE_PROBE_H_

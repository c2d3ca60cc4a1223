// Objects are believed while their watch is current, and not a moment longer.
#include "programs/cluster/fresh_cache.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cbt/kube/client.h"
#include "cbt/kube/typed_objects.h"
#include "tests/kube/support/fake_api.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace fresh_cache_test {

using kube::cluster::FreshCache;

class FreshCacheTest : public testing::Test {
 protected:
  FreshCacheTest() {
    api_.Put("a", "one", "1");
    kube::Config config;
    config.server = api_.url();
    client_ = ValueOf(kube::Client::Create(std::move(config), {.max_retries = 0}));
    cache_ = ValueOf(FreshCache::Create(*client_, kube::kConfigMaps));
  }
  ~FreshCacheTest() override { cache_->Stop(); }

  bool WaitUntilCurrent(bool current) const {
    for (int i = 0; i < 6000 && cache_->current() != current; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return cache_->current() == current;
  }
  absl::StatusOr<size_t> Size() const {
    return cache_->With(
        [](const kube::ObjectCache& cache) -> absl::StatusOr<size_t> { return cache.size(); });
  }

  FakeApi api_;
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<FreshCache> cache_;
};

TEST_F(FreshCacheTest, AnswersOnceTheWatchIsCurrent) {
  ASSERT_TRUE(WaitUntilCurrent(true));
  EXPECT_EQ(ValueOf(Size()), 1u);
  EXPECT_OK(cache_->Get<kube::ConfigMap>("a", "one"));
  EXPECT_TRUE(absl::IsNotFound(cache_->Get<kube::ConfigMap>("a", "two").status()));
  EXPECT_NE(cache_->LastSeen("a", "one"), nullptr);
  EXPECT_EQ(cache_->LastSeen("a", "two"), nullptr);
}

TEST_F(FreshCacheTest, FillsUntilItHasListed) {
  cache_->Stop();
  api_.SetPlan([](const FakeRequest&) { return FakePlan{.delay_ms = 300}; });
  cache_ = ValueOf(FreshCache::Create(*client_, kube::kConfigMaps));
  EXPECT_TRUE(cache_->filling());
  EXPECT_TRUE(WaitUntilCurrent(true));
  EXPECT_FALSE(cache_->filling());
  cache_->Stop();
  EXPECT_FALSE(cache_->filling());
}

TEST_F(FreshCacheTest, DoesNotFillWhenItsListFails) {
  cache_->Stop();
  api_.SetPlan([](const FakeRequest&) { return FakePlan{.code = 403}; });
  cache_ = ValueOf(FreshCache::Create(*client_, kube::kConfigMaps));
  for (int i = 0; i < 6000 && cache_->filling(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(cache_->filling());
  EXPECT_FALSE(cache_->current());
  EXPECT_TRUE(absl::IsPermissionDenied(cache_->trouble())) << cache_->trouble();
}

TEST_F(FreshCacheTest, SaysThatThereIsTooMuch) {
  ASSERT_TRUE(WaitUntilCurrent(true));
  EXPECT_OK(cache_->trouble());
  cache_->Stop();
  EXPECT_OK(cache_->trouble());
  cache_ = ValueOf(FreshCache::Create(*client_, kube::kConfigMaps, {.max_bytes = 1}));
  for (int i = 0; i < 6000 && cache_->trouble().ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(cache_->trouble())) << cache_->trouble();
  EXPECT_FALSE(cache_->current());
}

TEST_F(FreshCacheTest, AnInterruptionIsNoTrouble) {
  ASSERT_TRUE(WaitUntilCurrent(true));
  cache_->Stop();
  api_.SetPlan([](const FakeRequest&) { return FakePlan{.code = 503}; });
  cache_ = ValueOf(FreshCache::Create(*client_, kube::kConfigMaps));
  for (int i = 0; i < 6000 && cache_->filling(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(cache_->current());
  EXPECT_OK(cache_->trouble());
}

TEST_F(FreshCacheTest, IsNotBelievedAfterAnInterruption) {
  ASSERT_TRUE(WaitUntilCurrent(true));
  api_.SetReachable(false);
  api_.Disconnect();
  ASSERT_TRUE(WaitUntilCurrent(false));
  EXPECT_TRUE(absl::IsUnavailable(Size().status()));
  EXPECT_TRUE(absl::IsUnavailable(cache_->Get<kube::ConfigMap>("a", "one").status()));
  EXPECT_NE(cache_->LastSeen("a", "one"), nullptr);
  api_.SetReachable(true);
  EXPECT_TRUE(WaitUntilCurrent(true));
}

TEST_F(FreshCacheTest, IsNotBelievedAfterItsEnd) {
  ASSERT_TRUE(WaitUntilCurrent(true));
  cache_->Stop();
  cache_->Stop();
  EXPECT_FALSE(cache_->current());
  EXPECT_TRUE(absl::IsUnavailable(Size().status()));
  EXPECT_EQ(cache_->LastSeen("a", "one"), nullptr);
}

}  // namespace fresh_cache_test
}  // namespace cbt::test
